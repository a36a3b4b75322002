"""Faults on demand."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from trek.errors import InputError
from trek.testing.faults import Fault, FaultScript, ScriptedFailure, parse_faults


def test_a_script_is_read_back_from_its_text() -> None:
    faults = [Fault("kill", 1, 50), Fault("exit", 0, 70, code=3, once=Path("/tmp/seen"))]
    assert parse_faults("; ".join(map(str, faults))) == faults


def test_only_the_named_rank_fails_and_only_at_its_step() -> None:
    environ = {"TREK_FAULTS": "raise rank=1 step=3"}
    FaultScript.from_env(environ, rank=0).at(3)
    script = FaultScript.from_env(environ, rank=1)
    script.at(2)
    with pytest.raises(ScriptedFailure, match="rank 1 was told to fail at step 3"):
        script.at(3)


def test_a_fault_that_happens_once_does_not_happen_after_a_restart(tmp_path: Path) -> None:
    faults = [Fault("raise", 0, 1, once=tmp_path / "seen")]
    with pytest.raises(ScriptedFailure):
        FaultScript(faults, rank=0).at(1)
    FaultScript(faults, rank=0).at(1)


@pytest.mark.parametrize(("kind", "code"), [("exit rank=0 step=1 code=3", 3), ("kill rank=0 step=1", -signal.SIGKILL)])
def test_a_process_ends_as_scripted(kind: str, code: int) -> None:
    program = "from trek.testing.faults import FaultScript; FaultScript.from_env(rank=0).at(1)"
    assert subprocess.run([sys.executable, "-c", program], env={"TREK_FAULTS": kind}, check=False).returncode == code


@pytest.mark.parametrize("text", ["explode rank=1 step=2", "kill rank=1", "kill rank=1 step=2 when=now"])
def test_a_script_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not understood"):
        parse_faults(text)
