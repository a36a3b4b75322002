"""What a program sees of its training in other processes: a progress bar on its terminal, and calls of its loggers."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path
from typing import Any

import pytest

import trek
from trek.testing.trials import PointsTrial
from trek.train.loggers.base import CheckpointRow, Logger, MetricRow

SCRIPT = """
import sys
import trek
from trek.testing.trials import PointsTrial

class Says(PointsTrial):
    def train_batch(self, batch, model, batch_idx):
        if batch_idx == 3:
            print("a line from rank", self.context.distributed.get_rank(), file=sys.stderr)
        return super().train_batch(batch, model, batch_idx)

if __name__ == "__main__":
    hparams = {"global_batch_size": 8, "rows": 80}
    trek.fit(Says, hparams=hparams, max_length=trek.batches(15), workers=int(sys.argv[1]))
"""


def run_on_a_terminal(folder: Path, *arguments: str) -> str:
    (folder / "script.py").write_text(SCRIPT)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "script.py", *arguments], cwd=folder, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end was closed
            break
        written += part
    os.close(ours)
    assert process.wait(timeout=240) == 0, written
    return written.decode()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_terminal_shows_the_bar_of_the_leader(workers: int, tmp_path: Path) -> None:
    """With several workers there was no bar, because they have no terminal."""
    shown = run_on_a_terminal(tmp_path, str(workers))
    for words in ("epoch: 1/2:   0%", "epoch: 2/2:   0%", "| 0/5 [", "validation:"):
        assert words in shown
    assert "a line from rank 0" in shown
    assert ("[rank 1] a line from rank 1" in shown) == (workers == 2)
    assert "\x02" not in shown
    assert "trek: epoch" not in shown, "a bar is shown, and no lines"


REPORT = r"trek: epoch 1/2, batch 10 \(67%\): loss 0\.\d+, [\d.e+]+ records/s"
VALIDATION = r"trek: epoch {0}/2, batch {1} \({2}%\): validation: validation_loss 0\.\d+, accuracy [\d.]+"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_pipe_gets_lines_of_text_of_the_leader_alone(workers: int, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "script.py", str(workers)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=240)
    assert ended.stdout == ""
    lines = [line for line in ended.stderr.splitlines() if "a line from rank" not in line]
    wanted = [REPORT, VALIDATION.format(1, 10, 67), VALIDATION.format(2, 15, 100)]
    assert len(lines) == len(wanted), ended.stderr
    for line, pattern in zip(lines, wanted, strict=True):
        assert re.fullmatch(pattern, line)
        assert line.isprintable()


def test_launched_processes_write_each_line_once(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "trek", "launch", "--workers", "2", "script.py", "2"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=240)
    assert (ended.stdout + ended.stderr).count("validation: validation_loss") == 2


def test_without_a_terminal_nothing_is_drawn_or_sent(capfd: pytest.CaptureFixture[str]) -> None:
    hparams = {"global_batch_size": 8, "rows": 16}
    trek.fit(PointsTrial, hparams=hparams, max_length=trek.epochs(1), workers=2, show_progress=False)
    printed = capfd.readouterr()
    assert printed.out == printed.err == ""


class Notes(Logger):
    """Cannot be pickled, and notes the thread it was called from."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.rows: list[tuple[str, int]] = []
        self.calls: list[str] = []
        self.threads: set[int] = set()

    def _note(self, call: str) -> None:
        self.calls.append(call)
        self.threads.add(threading.get_ident())

    def start(self, *, name: str, hparams: Any) -> None:
        self._note(f"start {name} {sorted(hparams)}")

    def log_metrics(self, row: MetricRow) -> None:
        self.rows.append((row.group, row.batches))

    def log_checkpoint(self, row: CheckpointRow) -> None:
        self._note(f"checkpoint {row.batches}")

    def close(self) -> None:
        self._note("close")


def test_logger_objects_are_called_in_the_program_that_made_them() -> None:
    """They were copied to the leader, so that the program's own stayed empty; one that cannot be copied failed."""
    heard = {}
    for workers in (1, 2):
        notes = Notes()
        hparams = {"global_batch_size": 8, "rows": 16}
        trek.fit(
            PointsTrial, hparams=hparams, max_length=trek.epochs(2), workers=workers, name=f"run{workers}",
            loggers=[notes, "csv"], show_progress=False,
        )  # fmt: skip
        assert notes.threads == {threading.get_ident()}
        heard[workers] = notes.rows, [call.replace(f"run{workers}", "run") for call in notes.calls]
    assert heard[1] == heard[2]


class Broken(Notes):
    def log_metrics(self, row: MetricRow) -> None:
        raise KeyError("no such column")


def test_an_error_of_a_logger_ends_the_run_as_in_one_process() -> None:
    with pytest.raises(KeyError, match="no such column"):
        trek.fit(
            PointsTrial, hparams={"global_batch_size": 8}, max_length=trek.epochs(2), workers=2, loggers=[Broken()],
            show_progress=False,
        )  # fmt: skip
