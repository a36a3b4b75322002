"""The mutual proof: only who knows the secret gives it, in its own role, for this connection."""

from __future__ import annotations

import pytest

from trek.wire.secret import AuthenticationError, Handshake

SECRET = "only the processes of this job know it"


@pytest.mark.parametrize("roles", [("server", "client"), ("rank 9", "rank 10")])
def test_two_processes_that_know_the_secret_convince_each_other(roles: tuple[str, str]) -> None:
    one, other = Handshake(SECRET, role=roles[0], peer=roles[1]), Handshake(SECRET, role=roles[1], peer=roles[0])
    one.check(other.nonce, other.proof(one.nonce))
    other.check(one.nonce, one.proof(other.nonce))


def test_another_secret_proves_nothing() -> None:
    one = Handshake(SECRET, role="server", peer="client")
    other = Handshake("not the secret", role="client", peer="server")
    with pytest.raises(AuthenticationError):
        one.check(other.nonce, other.proof(one.nonce))


def test_a_proof_sent_back_proves_nothing() -> None:
    one = Handshake(SECRET, role="client", peer="server")
    with pytest.raises(AuthenticationError):
        one.check(one.nonce, one.proof(one.nonce))


def test_a_proof_of_another_connection_proves_nothing() -> None:
    one, later = (Handshake(SECRET, role="server", peer="client") for _ in range(2))
    other = Handshake(SECRET, role="client", peer="server")
    with pytest.raises(AuthenticationError):
        later.check(other.nonce, other.proof(one.nonce))
