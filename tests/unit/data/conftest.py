"""A real HTTP server on loopback that can misbehave, and a small data set to fetch from it."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from trek.data.datasets import Dataset, RemoteFile

CONTENT = bytes(range(256)) * 4096


@dataclass
class FileServer:
    """What the server serves, how it misbehaves, and what it was asked."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    truncate_to: list[int] = field(default_factory=list)
    """Each of the next answers stops after so many bytes."""
    status: list[int] = field(default_factory=list)
    """Each of the next answers is this status instead."""
    knows_ranges: bool = True
    requests: list[tuple[str, str | None]] = field(default_factory=list)


@pytest.fixture
def file_server() -> Iterator[FileServer]:
    """A running server; `files` maps a path to bytes."""
    state = FileServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            state.requests.append((self.path, wanted))
            if state.status:
                self.send_error(state.status.pop(0))
            elif self.path not in state.files:
                self.send_error(404)
            else:
                self._send(state.files[self.path], wanted)

        def _send(self, content: bytes, wanted: str | None) -> None:
            start = int(re.match(r"bytes=(\d+)-", wanted)[1]) if wanted and state.knows_ranges else 0
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            stop = start + state.truncate_to.pop(0) if state.truncate_to else None
            self.wfile.write(content[start:stop])
            self.close_connection = True

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def small_dataset(file_server: FileServer) -> Dataset:
    """One file of a megabyte, with two addresses on the server."""
    file_server.files = {"/one/blob.bin": CONTENT, "/two/blob.bin": CONTENT}
    file = RemoteFile(
        "blob.bin",
        len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        urls=[f"{file_server.url}/one/blob.bin", f"{file_server.url}/two/blob.bin"],
    )
    return Dataset("small", "a blob", "none", "", {"train": [file]}, parse=lambda paths, split: None)
