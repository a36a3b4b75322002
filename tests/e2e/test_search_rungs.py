"""A search as a user runs it: trials are validated at the rungs and at the user's period, and stop exactly there."""

from __future__ import annotations

import json

from trek.testing.shell import Shell

SPACE = {"lr": {"type": "log", "minval": -3, "maxval": -1}}


def test_trials_are_validated_and_stopped_at_the_rungs_only(shared_shell: Shell) -> None:
    # Rungs of 3, 12 and 50 were validated at 3, 6, 9 …, so that trials were stopped at 15 instead of 12.
    searcher = {"name": "asha", "metric": "validation_error", "max_trials": 6, "max_length": {"batches": 50},
                "num_rungs": 3, "divisor": 4, "max_concurrent_trials": 2}  # fmt: skip
    done = shared_shell.create("--json", searcher=searcher, hyperparameters__lr=SPACE["lr"])
    assert done.returncode == 0, done.stderr
    trials = json.loads(done.stdout)["trials"]
    assert {trial["batches"] for trial in trials} <= {3, 12, 50}
    for trial in trials:
        points = shared_shell.json("trial", "metrics", str(trial["id"]), "--group", "validation")
        expected = [length for length in (3, 12, 50) if length <= trial["batches"]]
        assert [point["batches"] for point in points] == expected


def test_the_period_of_the_user_is_kept_beside_the_rungs(shared_shell: Shell) -> None:
    # It was replaced by the first rung.
    searcher = {"name": "asha", "metric": "validation_error", "max_trials": 1, "max_length": {"batches": 50},
                "num_rungs": 3, "divisor": 4}  # fmt: skip
    done = shared_shell.create("--json", searcher=searcher, min_validation_period={"batches": 20})
    assert done.returncode == 0, done.stderr
    trial = json.loads(done.stdout)["trials"][0]
    points = shared_shell.json("trial", "metrics", str(trial["id"]), "--group", "validation")
    assert [point["batches"] for point in points] == [3, 12, 20, 40, 50]
