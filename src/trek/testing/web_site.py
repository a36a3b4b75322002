"""WebSite: a real master under a path prefix with a finished search, and its pages in a real browser, for tests."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trek.client.client import Client
from trek.client.embedded import running_address
from trek.experiments.creation import create_experiment
from trek.testing.shell import Shell, wait_until

AXE = Path(__file__).resolve().parents[3] / "web" / "node_modules" / "axe-core" / "axe.min.js"
NASTY = "<img src=x onerror=alert(1)>"
PASSWORD = "correct horse"  # noqa: S105 - of users that exist in tests alone
SEARCH: dict[str, Any] = {
    "name": NASTY,
    "description": f"# Notes\n\n{NASTY} and [a link](javascript:alert(1))\n\n- **bold**",
    "labels": ["<b>label</b>"],
    "hyperparameters": {
        "learning_rate": {"type": "log", "minval": -3, "maxval": -1, "base": 10},
        "global_batch_size": {"type": "categorical", "vals": [16, 32, 64]},
    },
    "searcher": {
        "name": "asha", "metric": "validation_error", "smaller_is_better": True, "max_trials": 4,
        "max_length": 16, "num_rungs": 2, "divisor": 2,
    },
    "training": {"validation_period": {"batches": 4}, "report_period": 2},
    "entrypoint": "model_def:LineTrial",
}  # fmt: skip


@dataclass
class WebSite:
    """A master under /trek with a finished search (1), an admin `ann` and a viewer `vic`."""

    url: str
    client: Client
    shell: Shell

    def link(self, place: str) -> str:
        """An address that logs a browser in as the home's owner."""
        return self.client.page_link(place).replace(self.client.url, self.url)

    def create(self, config: dict[str, Any]) -> int:
        """The id of a new experiment with the model folder of the shell."""
        return create_experiment(config, self.shell.model, connect=lambda _: self.client).id

    def write_rows(self, statement: str, *parameters: Any) -> None:
        """Change the database behind the master's back: what would take hours to report."""
        with closing(sqlite3.connect(self.shell.home / "control.db", timeout=60)) as rows, rows:
            rows.execute(statement, parameters)


@contextmanager
def open_site(shell: Shell) -> Iterator[WebSite]:
    """Start the master, train the search to its end; at the end, stop both."""
    for name, role in (("ann", "admin"), ("vic", "viewer")):
        assert shell.run("user", "create", name, "--role", role, "--password", PASSWORD).returncode == 0
    master = shell.start("up", "--port", "0", "--prefix", "/trek")
    try:
        assert master.stdout is not None
        first = master.stdout.readline()
        wait_until(lambda: running_address(shell.home) is not None)
        address = running_address(shell.home)
        assert address is not None
        with Client(address) as client:
            site = WebSite(first.split(" at ")[1].split()[0], client, shell)
            assert site.create(SEARCH) == 1
            wait_until(lambda: client.experiment(1).state == "completed", timeout_s=300)
            yield site
            for one in client.experiments():
                client.kill_experiment(one.id)
    finally:
        master.send_signal(signal.SIGINT)
        master.communicate(timeout=60)


@dataclass
class Visits:
    """Opens places of a site in tabs, and keeps what the browser complained about and which hosts it asked."""

    site: WebSite
    context: Any
    complaints: list[str]
    hosts: set[str]

    def __call__(self, place: str) -> Any:
        """A new tab at `place`, logged in as the home's owner."""
        page = self.context.new_page()
        page.on("console", lambda message: self.complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))
        page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))
        page.goto(self.site.link(place))
        page.wait_for_selector("nav.side")
        return page


@contextmanager
def open_visits(site: WebSite, browser: Any) -> Iterator[Visits]:
    """Fails at the end for whatever the console complained about, and for a host other than the site's."""
    context = browser.new_context(viewport={"width": 1360, "height": 850}, accept_downloads=True)
    context.set_default_timeout(60_000)
    visits = Visits(site, context, [], set())
    try:
        yield visits
    finally:
        context.close()
    assert visits.complaints == []
    assert visits.hosts <= {site.url.split("/")[2]}, "the page contacted another host"


def axe_complaints(page: Any) -> list[str]:
    """What axe-core finds wrong with a page for assistive technology; nothing where it is not installed (make web)."""
    if not AXE.is_file():
        return []
    page.evaluate(AXE.read_text())
    rules = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [f"{rule['id']} ({rule['help']}): {rule['nodes'][0]['html'][:150]}" for rule in rules]


def why_no_page(folder: Path) -> str:
    """Why there is no built page in `folder`; empty if there is one."""
    return "" if (folder / "index.html").is_file() else "the page is not built (make web)"
