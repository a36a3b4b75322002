"""ServerGroup: the servers of one model as a client sees them. Requests to several are under way at the same time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from trek.ps.addresses import parse_address
from trek.ps.protocol import messages as pb
from trek.ps.protocol.tensors import Attachments, Bytes
from trek.ps.server_link import Moved, ServerLink, send_out

Request: TypeAlias = tuple[pb.Envelope, Attachments | None]
Answer: TypeAlias = tuple[pb.Envelope, Bytes]


class ServerGroup:
    """Asks all servers, or some. One thread at a time."""

    def __init__(self, addresses: Sequence[str], *, secret: str, patience_s: float) -> None:
        self.secret = secret
        self.patience_s = patience_s
        self._links = [ServerLink(parse_address(one), secret=secret, patience_s=patience_s) for one in addresses]

    def __len__(self) -> int:
        return len(self._links)

    @property
    def addresses(self) -> list[str]:
        """Of each server, host:port."""
        return [f"{host}:{port}" for host, port in (link.address for link in self._links)]

    def elsewhere(self, addresses: Sequence[str]) -> ServerGroup:
        """Other servers of the same job."""
        return ServerGroup(addresses, secret=self.secret, patience_s=self.patience_s)

    def ask_all(self, envelope: pb.Envelope) -> list[Answer]:
        """The same of every server."""
        return self.ask([(envelope, None)] * len(self))

    def ask(self, requests: Sequence[Request]) -> list[Answer]:
        """A request for every server, in their order."""
        return list(self.ask_some(dict(enumerate(requests))).values())

    def ask_some(self, requests: Mapping[int, Request]) -> dict[int, Answer]:
        """Send all requests, then wait for all answers; the first failure is raised once all have answered.

        A server that does not take its request yet does not keep the others from getting theirs. That servers have
        moved counts more than other failures.
        """
        for server, request in requests.items():
            self._links[server].begin(*request)
        send_out([self._links[server] for server in requests])
        answers: dict[int, Answer] = {}
        failures: list[Exception] = []
        for server in requests:
            try:
                answers[server] = self._links[server].receive()
            except Exception as error:  # noqa: BLE001 - raised below, after the other servers have answered
                failures.append(error)
        if failures:
            raise min(failures, key=lambda one: not isinstance(one, Moved))
        return answers

    def close(self) -> None:
        """Disconnect."""
        for link in self._links:
            link.close()
