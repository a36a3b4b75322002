"""Workers and parameter servers as real processes."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import trek
from trek.errors import ConfigError
from trek.serve.handlers import open_handler
from trek.testing.rating_trial import NUM_ROWS, Ratings, RatingTrial, make_ratings
from trek.testing.serving import source_of
from trek.train.result import Result

SYNC = {"mode": "sync"}


class PrefetchingTrial(RatingTrial):
    """Says before which rows a batch needs."""

    def row_ids(self, batch: Any) -> dict[str, torch.Tensor]:
        user, tags, _ = batch
        return {"user": user, "tags": tags}


def fit(*, epochs: int = 2, trial: type[RatingTrial] = RatingTrial, **settings: Any) -> Result:
    hparams = {"global_batch_size": 8, "optimizer": "Adam"}
    return trek.fit(trial, hparams=hparams, max_length=trek.epochs(epochs), show_progress=False, **settings)


def contents(result: Result) -> dict[str, Any]:
    """The weights, with rows by id: their order is not the same everywhere."""
    assert result.checkpoint is not None
    state = result.checkpoint.state_dict()
    for table in ("user", "tags"):
        ids, rows = state.pop(f"{table}.ids"), state.pop(f"{table}.rows")
        state |= {f"{table} {one}": row for one, row in zip(ids.tolist(), rows, strict=True)}
    return state


def assert_equal(one: Result, other: Result) -> None:
    first, second = contents(one), contents(other)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_one_synchronous_worker_equals_solo_and_they_continue_each_other() -> None:
    straight = fit()
    served = fit(strategy="ps", servers=2, strategy_options=SYNC, epochs=1, trial=PrefetchingTrial)
    assert_equal(served, fit(epochs=1))
    assert served.checkpoint is not None
    assert_equal(fit(resume=served.checkpoint), straight)
    assert_equal(fit(strategy="ps", servers=1, strategy_options=SYNC, resume=served.checkpoint), straight)


def test_two_synchronous_workers_equal_ddp_and_are_served_from_what_they_exported() -> None:
    found, expected = fit(workers=2, strategy="ps", servers=2, strategy_options=SYNC), fit(workers=2)
    assert_equal(found, expected)
    users, tags, _ = make_ratings()[:8]
    asked = {"input_0": users.numpy(), "input_1": tags.numpy()}
    assert found.checkpoint is not None
    assert expected.checkpoint is not None
    served = open_handler(source_of(found.checkpoint.path)).predict(asked)["output"]
    assert torch.equal(torch.from_numpy(served), expected.checkpoint.load_model(RatingTrial)(users, tags).detach())


def train(tr: trek.Traveler, kills_at: int) -> dict[str, Any]:
    """One epoch; the leader kills a server after a number of batches."""
    model = tr.add_model(Ratings())
    optimizer = tr.add_optimizer(torch.optim.Adagrad(model.parameters(), lr=0.1))
    data = tr.add_loader(make_ratings(), global_batch_size=8, shuffle=True)
    for _ in tr.epochs(1):
        for user, tags, rating in tr.train(data):
            tr.backward(F.mse_loss(model(user, tags), rating))
            tr.step(optimizer)
            if tr.world.is_leader and tr.position.batches == kills_at:
                os.kill(tr.strategy.client.stats()[1]["pid"], signal.SIGKILL)
    figures = tr.strategy.client.stats()
    state = model.state_dict()
    return {
        "rows": sum(table["rows"] for one in figures for table in one["tables"].values()),
        "versions": [one["version"] for one in figures],
        "replayed": [one["replayed"] for one in figures],
        "weight": state["dense.weight"].tolist(),
        "users": dict(zip(map(str, state["user.ids"].tolist()), state["user.rows"].tolist(), strict=True)),
    }


def test_a_killed_server_comes_back_with_every_acknowledged_push() -> None:
    options = {"strategy": "ps", "servers": 2, "workers": 1, "show_progress": False}
    calm, killed = (trek.run(train, kills_at, **options) for kills_at in (-1, 4))
    assert calm.pop("replayed") == [0, 0]
    assert killed.pop("replayed")[1] > 0
    assert killed == calm
    assert killed["versions"] == [NUM_ROWS // 8] * 2


@pytest.mark.parametrize(
    "options", [{}, {"max_lead": 1}, {"pull_period": 3, "scale_lr_by_staleness": True}], ids=["free", "lead", "local"]
)
def test_asynchronous_workers_learn(options: dict[str, Any]) -> None:
    result = fit(workers=2, strategy="ps", servers=1, strategy_options=options, epochs=4, trial=PrefetchingTrial)
    losses = [row["validation_loss"] for row in result.metrics if "validation_loss" in row]
    assert losses[-1] < 0.9 * losses[0]


def test_settings_that_cannot_work_are_named() -> None:
    with pytest.raises(ConfigError, match="is for strategy 'ps'"):
        fit(servers=2)
    with pytest.raises(ConfigError, match="needs parameter servers"):
        fit(strategy="ps", workers=2)
    with pytest.raises(ConfigError, match="cannot come and go"):
        fit(strategy="ps", servers=1, workers=(1, 2), strategy_options=SYNC)
    with pytest.raises(ConfigError, match="for mode 'async'"):
        fit(strategy="ps", servers=1, strategy_options={"mode": "sync", "max_lead": 1})
