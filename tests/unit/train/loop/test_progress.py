"""Progress bars: their labels and totals, and where they are shown."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import trek
from trek.data.loaders import as_loader
from trek.train.loop import progress
from trek.train.loop.plan import Plan
from trek.train.loop.position import Position
from trek.train.settings import TrainSettings


def plan(length: Any, data: Any) -> Plan:
    loader = as_loader(data, world=trek.World(device_name="cpu"), seed=0)
    return Plan.of(TrainSettings.of(max_length=length), loader)


TWENTY = trek.DataLoader((torch.zeros(160),), 8)


@pytest.mark.parametrize(
    ("length", "epoch", "label", "total"),
    [
        (trek.epochs(3), 1, "epoch: 2/3", 20),
        (trek.batches(50), 1, "epoch: 2/3", 20),
        (trek.batches(50), 2, "epoch: 3/3", 10),
        (trek.batches(7), 0, "epoch: 1/1", 7),
        (trek.records(200), 1, "epoch: 2/2", 5),
        (None, 1, "epoch: 2", 20),
    ],
)
def test_a_bar_has_the_total_of_what_the_run_trains(length: Any, epoch: int, label: str, total: int) -> None:
    """With a length in batches or records, the number of epochs was missing, and a shorter last epoch never ended."""
    position = Position(epoch=epoch, batches=20 * epoch)
    made = plan(length, TWENTY)
    assert (made.epoch_label(position), made.epoch_total(position)) == (label, total)


def test_a_stream_has_the_total_of_the_run_if_that_is_known() -> None:
    position = Position(epoch=1, epoch_batch=3, batches=20)
    assert plan(trek.batches(50), iter(())).epoch_total(position) == 33
    assert plan(trek.epochs(2), iter(())).epoch_total(position) is None


@pytest.fixture
def sent() -> Iterator[list[Mapping[str, Any]]]:
    messages: list[Mapping[str, Any]] = []
    progress.show_bars_through(messages.append)
    yield messages
    progress._send = None


def test_a_bar_that_is_sent_ends_where_the_work_ended(sent: list[Mapping[str, Any]]) -> None:
    with progress.open_bar("epoch: 1", total=9, start=2, is_shown=True) as bar:
        for _ in range(4):
            bar.update()
    assert sent[0] == {"bar": "open", "label": "epoch: 1", "total": 9, "start": 2}
    assert list(sent[-2:]) == [{"bar": "at", "count": 6}, {"bar": "close"}]
    with progress.open_bar("epoch: 2", total=9, is_shown=False) as bar:
        bar.update()
    assert len(sent) == 3


def test_bars_are_shown_on_a_terminal_and_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook has no terminal, so there was no bar."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not progress.can_show_bars()
    shell = SimpleNamespace(config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]
    assert progress.can_show_bars()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))  # type: ignore[arg-type]
    assert not progress.can_show_bars()
