"""What a train function returns comes back equal from one process as from several, or is refused by name."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import trek
from trek.errors import InputError
from trek.train.jobs import returned
from trek.train.jobs.rank_outcome import RankOutcome
from trek.train.jobs.returned import pack, unpack
from trek.wire.values import NotPlain


@pytest.mark.parametrize(
    "value",
    [
        *(None, 1, 1.5, True, "text", b"bytes", 2j, (1, 2), [1, (2,)], {1: 2}, {"a": {1, 2}}, {(1, 2): 3}),
        *({frozenset({1}): 2}, {frozenset({1, 2})}, {(1, frozenset("a")): 3}),
        *(float("inf"), np.float32(0.5), np.int64(3), OrderedDict(a=1)),
    ],
    ids=repr,
)
def test_plain_values_come_back_equal(value: Any) -> None:
    assert unpack(pack(value)) == value


def test_tensors_and_arrays_come_back_to_the_bit() -> None:
    weight = torch.nn.Linear(2, 2).weight
    assert torch.equal(unpack(pack({"weight": weight}))["weight"], weight.detach())
    assert np.array_equal(unpack(pack([np.arange(3)]))[0], np.arange(3))


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"a": [1, 2], "b": [0.5, float("nan")]}),
        pd.DataFrame({1: ["x", "y"]}, index=pd.to_datetime(["2026-01-01", "2026-01-02"])),
        pd.DataFrame({"kind": pd.Categorical(["a", "b"]), "small": np.ones(2, np.float32)}),
        pd.DataFrame(),
    ],
    ids=["numbers", "dates", "categories", "empty"],
)
def test_frames_keep_their_types_and_index(frame: pd.DataFrame) -> None:
    """Only columns of plain values used to come back, with an index of their own."""
    pd.testing.assert_frame_equal(unpack(pack([frame]))[0], frame)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (torch.nn.Linear(1, 1), r"returned a Linear, which"),
        ({"runs": [1, {"model": torch.nn.Linear(1, 1)}]}, r"returned a Linear at \['runs'\]\[1\]\['model'\], which"),
        ((1, lambda: 3), r"returned a function at \[1\], which"),
        (np.array(["text"]), r"returned a <U4 array, which"),
        (pd.DataFrame({"a": [object()]}), r"returned a DataFrame, which"),
    ],
    ids=["model", "inside", "function", "array", "frame"],
)
def test_anything_else_is_refused_with_its_type_and_place(value: Any, what: str) -> None:
    with pytest.raises(InputError, match=what + r".*It may return numbers, .*its checkpoints are kept\."):
        pack(value)


def test_what_is_nested_too_deeply_or_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InputError, match="a list that is nested too deeply"):
        pack(endless)
    monkeypatch.setattr(returned, "_MAX_BYTES", 1 << 20)
    with pytest.raises(InputError, match=r"returned 2 MB, and at most 1 MB can be sent .*tr\.log_artifact"):
        pack(bytes(2 << 20))


def test_one_process_refuses_what_several_would_and_keeps_the_checkpoint(home: Any) -> None:
    def train(tr: trek.Traveler) -> Any:
        tr.add_model(torch.nn.Linear(1, 1))
        tr.save()
        return tr

    with pytest.raises(InputError, match="the train function returned a Traveler"):
        trek.run(train, workers=1, show_progress=False)
    assert len(list((home / "runs" / "train" / "checkpoints").iterdir())) == 1


def test_an_error_of_a_kind_that_is_not_public_keeps_its_public_kind() -> None:
    outcome = RankOutcome.of_error(0, NotPlain("Linear", path=""))
    assert isinstance(outcome.named_error(), InputError)
