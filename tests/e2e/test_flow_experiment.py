"""A whole experiment as a step of a flow, against a real control plane."""

from __future__ import annotations

import json
import signal
import textwrap

from trek.client.client import Client
from trek.client.embedded import running_address
from trek.testing.shell import Shell, wait_until


def _write_flow(shell: Shell) -> None:
    config = shell.config(hyperparameters__first_run_sleep_s=0.2)
    (shell.folder / "flow.py").write_text(
        textwrap.dedent(f"""
            import trek

            def describe(checkpoint, folder):
                print(sorted(checkpoint.state_dict()), checkpoint.batches, folder == checkpoint.path)

            flow = trek.Flow("search")
            lr = flow.param("lr", 0.05)
            model = flow.experiment({config!r}, {str(shell.model)!r}, name="train",
                                    overrides={{"hyperparameters.learning_rate": lr}})
            flow.step(describe, model, model.path)
        """)
    )


def _states(shell: Shell) -> list[str]:
    address = running_address(shell.home)
    if address is None:  # it ends by itself when nothing runs
        return [one["state"] for one in shell.json("experiment", "list")]
    with Client(address) as client:
        return [one.state for one in client.experiments()]


def test_an_interrupted_flow_pauses_its_experiment_and_goes_on_with_it_to_its_best_checkpoint(shell: Shell) -> None:
    _write_flow(shell)
    process = shell.start("flow", "run", "flow.py")
    wait_until(lambda: _states(shell) == ["running"])
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=240)
    assert process.returncode == 130
    wait_until(lambda: _states(shell) == ["paused"])

    done = shell.run("flow", "resume", "search", "--json")
    assert done.returncode == 0, done.stderr
    assert [step["state"] for step in json.loads(done.stdout)["steps"]] == ["done", "done"]
    assert _states(shell) == ["completed"]
    assert "continuing experiment 1" in shell.run("flow", "logs", "search", "train").stdout
    assert shell.run("flow", "logs", "search", "describe").stdout == "['bias', 'weight'] 100 True\n"
    assert [step["state"] for step in shell.json("flow", "run", "flow.py")["steps"]] == ["cached", "cached"]


def test_an_experiment_that_cannot_be_created_fails_its_step_with_one_sentence(shell: Shell) -> None:
    (shell.folder / "flow.py").write_text(
        textwrap.dedent(f"""
            import trek

            flow = trek.Flow("search")
            flow.experiment({shell.config()!r}, {str(shell.model)!r}, name="train",
                            overrides={{"searcher.name": "nosuch"}})
        """)
    )
    done = shell.run("flow", "run", "flow.py")
    assert done.returncode == 1
    assert "the experiment was not created: config-" in done.stderr
    assert "searcher 'nosuch' does not exist." in done.stderr
    assert "Traceback" not in shell.run("flow", "logs", "search", "train").stdout
