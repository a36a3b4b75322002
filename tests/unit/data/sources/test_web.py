"""A web server that fails once is asked again; one that keeps failing is one error with the URL and its answer."""

from __future__ import annotations

import gzip
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fsspec.asyn
import pytest

import trek
from trek.data.sources import web
from trek.errors import DataUnavailable, InputError

ROWS = list(range(20_000))
CONTENT = ("x\n" + "".join(f"{row}\n" for row in ROWS)).encode()


class Failing:
    """How the server fails: the next answers of each kind."""

    def __init__(self) -> None:
        self.url = ""
        self.statuses: list[int] = []
        """Of the next answers; the last one stays."""
        self.cuts: list[bool] = []
        """Whether the next bodies end half way; the last one stays."""
        self.num_requests = 0

    def next_of(self, plan: list[Any]) -> Any:
        return (plan.pop(0) if len(plan) > 1 else plan[0]) if plan else None


@pytest.fixture(scope="module")
def web_thread() -> None:
    """The thread on which fsspec makes its web requests: one for the process, which stays."""
    fsspec.asyn.get_loop()


@pytest.fixture
def server(web_thread: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Failing]:
    monkeypatch.setattr(web, "_FIRST_PAUSE_S", 0.0)
    state = Failing()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer(sends_body=False)

        def do_GET(self) -> None:
            self.answer(sends_body=True)

        def answer(self, *, sends_body: bool) -> None:
            state.num_requests += 1
            status = 404 if "manifest" in self.path or "gone" in self.path else state.next_of(state.statuses) or 200
            if status != 200:
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            content = gzip.compress(CONTENT) if self.path.endswith(".gz") else CONTENT
            wanted = re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            first, last = (int(wanted[1]), min(int(wanted[2]), len(content) - 1)) if wanted else (0, len(content) - 1)
            self.send_response(206 if wanted else 200)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
            self.send_header("Content-Length", str(last + 1 - first))
            self.end_headers()
            if sends_body:
                body = content[first : last + 1]
                self.wfile.write(body[: len(body) // 2] if wanted and state.next_of(state.cuts) else body)

        def log_message(self, *args: Any) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.daemon_threads = True
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"http://127.0.0.1:{running.server_port}"
    yield state
    running.shutdown()
    running.server_close()
    thread.join()


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz"])
@pytest.mark.parametrize("status", [500, 503, 429])
def test_an_answer_that_passes_is_tried_again(name: str, status: int, server: Failing) -> None:
    server.statuses = [status, 200, status, 200]
    assert trek.data.open(f"{server.url}/{name}").to_arrow()["x"].to_pylist() == ROWS


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz"])
def test_a_body_that_is_cut_short_is_read_again(name: str, server: Failing) -> None:
    server.cuts = [True, False]
    assert trek.data.open(f"{server.url}/{name}").to_arrow()["x"].to_pylist() == ROWS


def test_a_server_that_keeps_failing_is_named_with_its_answer(server: Failing) -> None:
    server.statuses = [503]
    with pytest.raises(DataUnavailable, match=rf"{server.url}/rows.csv: the server answered 503 \(4 attempts\)"):
        trek.data.open(f"{server.url}/rows.csv")


def test_a_server_that_fails_after_it_was_opened_is_named_too(server: Failing) -> None:
    table = trek.data.open(f"{server.url}/rows.csv")
    server.statuses = [502]
    with pytest.raises(DataUnavailable, match=r"rows.csv: the server answered 502 \(4 attempts\)"):
        table.to_arrow()


def test_bodies_that_stay_short_are_one_error(server: Failing) -> None:
    server.cuts = [True]
    with pytest.raises(DataUnavailable, match=r"rows.csv: ClientPayloadError.* \(4 attempts\)"):
        trek.data.open(f"{server.url}/rows.csv").to_arrow()


def test_an_answer_that_stays_is_not_asked_for_again(server: Failing) -> None:
    server.statuses = [403]
    with pytest.raises(DataUnavailable, match=r"rows.csv: the server answered 403. Check the URL"):
        trek.data.open(f"{server.url}/rows.csv")
    assert server.num_requests <= 3
    server.statuses = [200]
    with pytest.raises(InputError, match=r"gone.csv' does not exist"):
        trek.data.open(f"{server.url}/gone.csv")
