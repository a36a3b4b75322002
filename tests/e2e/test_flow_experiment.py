"""A whole experiment as a step of a flow, against a real control plane."""

from __future__ import annotations

import json
import signal
import textwrap

from trek.client.client import Client
from trek.client.embedded import running_address
from trek.testing.shell import Shell, wait_until


def _write_flow(shell: Shell, name: str, **changes: object) -> str:
    config = shell.config(**changes)
    path = shell.folder / f"{name}.py"
    path.write_text(
        textwrap.dedent(f"""
            import trek

            def describe(checkpoint, folder):
                print(sorted(checkpoint.state_dict()), checkpoint.batches, folder == checkpoint.path)

            flow = trek.Flow({name!r})
            lr = flow.param("lr", 0.05)
            model = flow.experiment({config!r}, {str(shell.model)!r}, name="train",
                                    overrides={{"name": {name!r}, "hyperparameters.learning_rate": lr}})
            flow.step(describe, model, model.path)
        """)
    )
    return str(path)


def _states(shell: Shell, name: str) -> list[str]:
    address = running_address(shell.home)
    if address is None:  # it ends by itself when nothing runs
        return [one["state"] for one in shell.json("experiment", "list") if one["name"] == name]
    with Client(address) as client:
        return [one.state for one in client.experiments() if one.name == name]


def test_the_best_checkpoint_of_an_experiment_goes_to_later_steps(shared_shell: Shell) -> None:
    path = _write_flow(shared_shell, "whole")
    first = shared_shell.json("flow", "run", path)
    assert [step["state"] for step in first["steps"]] == ["done", "done"]
    assert shared_shell.run("flow", "logs", "whole", "describe").stdout == "['bias', 'weight'] 100 True\n"
    again = shared_shell.json("flow", "run", path)
    assert [step["state"] for step in again["steps"]] == ["cached", "cached"]
    assert _states(shared_shell, "whole") == ["completed"]


def test_an_interrupted_flow_pauses_its_experiment_and_goes_on_with_it(shared_shell: Shell) -> None:
    path = _write_flow(shared_shell, "interrupted", hyperparameters__sleep_s=0.03)
    process = shared_shell.start("flow", "run", path)
    wait_until(lambda: _states(shared_shell, "interrupted") == ["running"])
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    wait_until(lambda: _states(shared_shell, "interrupted") == ["paused"])
    done = shared_shell.run("flow", "resume", path, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["state"] == "done"
    assert _states(shared_shell, "interrupted") == ["completed"]
    assert "going on with experiment" in shared_shell.run("flow", "logs", "interrupted", "train").stdout
