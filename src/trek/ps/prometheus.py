"""The figures of a server in the format of Prometheus, and the small HTTP server that gives them out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from trek.errors import PortInUse


def to_text(figures: Mapping[str, Any]) -> str:
    """What a scraper reads. `figures` are those of `Client.stats` for one server."""
    lines = _gauge("version", "Number of applied steps.", {"": figures["version"]})
    lines += _gauge("dense_bytes", "Bytes of dense parameters.", {"": figures["dense"]["bytes"]})
    lines += _gauge("rejected_pushes", "Pushes whose gradients were too old.", {"": figures["rejected"]})
    for name, text in (("rows", "Rows of a table."), ("bytes", "Bytes of a table."), ("spilled", "Rows in files.")):
        values = {f'{{table="{_escaped(table)}"}}': one[name] for table, one in figures["tables"].items()}
        lines += _gauge(f"table_{name}", text, values)
    stale = {f'{{versions="{age}"}}': count for age, count in figures["staleness"].items()}
    lines += _gauge("pushes_by_staleness", "Pushes by the versions they were behind.", stale)
    return "\n".join([*lines, *_latencies(figures["requests"])]) + "\n"


def _latencies(requests: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Histograms of the times of requests, by kind."""
    name = "trek_ps_request_seconds"
    lines = [f"# HELP {name} Time of requests.", f"# TYPE {name} histogram"]
    for request, one in requests.items():
        label, total = f'request="{request}"', 0
        for upper_ms, count in one["histogram"].items():
            total += count
            lines.append(f'{name}_bucket{{{label},le="{float(upper_ms) / 1e3:g}"}} {total}')
        lines.append(f'{name}_bucket{{{label},le="+Inf"}} {one["count"]}')
        lines.append(f"{name}_sum{{{label}}} {one['total_ms'] / 1e3}")
        lines.append(f"{name}_count{{{label}}} {one['count']}")
    return lines if requests else []


class MetricsServer:
    """Gives out `to_text` at /metrics until it is closed."""

    def __init__(self, read: Callable[[], Mapping[str, Any]], *, host: str, port: int) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                """Answer a scraper."""
                is_known = self.path == "/metrics"
                body = to_text(read()).encode() if is_known else b"not found\n"
                self.send_response(200 if is_known else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the standard library
                """Scrapes are not worth a line."""

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise PortInUse(f"metrics cannot be served at {host}:{port}: {error}. Choose another port.") from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="trek-ps-metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _gauge(name: str, text: str, values: Mapping[str, float]) -> list[str]:
    head = [f"# HELP trek_ps_{name} {text}", f"# TYPE trek_ps_{name} gauge"]
    return [*head, *(f"trek_ps_{name}{labels} {value}" for labels, value in values.items())] if values else []


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
