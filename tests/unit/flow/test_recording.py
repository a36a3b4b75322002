"""Recording a run at a master: off the run's thread, in one line of warning at worst."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from trek.flow import recording
from trek.flow.flow_store import FlowStore


@pytest.fixture
def run(home: Path) -> str:
    store = FlowStore("f", home=home)
    begun = store.begin_run(["a"], params={}, source=None, graph=[{"name": "a", "after": []}], resume=None)
    store.close()
    return begun


def test_a_master_that_never_answers_delays_the_end_by_seconds_and_is_told_of_once(
    run: str, home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(recording, "_TIMEOUT_S", 0.3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        began = time.monotonic()
        with recording.recording("f", run, home=home, master=f"127.0.0.1:{silent.getsockname()[1]}"):
            assert time.monotonic() - began < recording.LAST_WAIT_S
        assert time.monotonic() - began < 4 * recording.LAST_WAIT_S
    assert capfd.readouterr().err.count("trek: warning: this run is not recorded") == 1


@pytest.mark.parametrize("master", ["ftp://nowhere", "http://127.0.0.1:9"])
def test_a_master_that_cannot_be_reached_is_told_of_once(
    run: str, home: Path, master: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with recording.recording("f", run, home=home, master=master):
        pass
    assert capfd.readouterr().err.count("trek: warning:") == 1


def test_without_a_master_no_thread_is_started(run: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording._Recorder, "start", lambda self: pytest.fail("a thread was started"))
    with recording.recording("f", run, home=home, master=None):
        pass
