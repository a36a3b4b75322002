"""An experiment is the same whether a command, Python or a flow creates it."""

from __future__ import annotations

import textwrap

import pytest
import yaml

import trek
from trek.client.client import Client
from trek.client.embedded import read_address, running_address
from trek.testing.shell import Shell, wait_until

TEMPLATE = {"max_restarts": 3, "workspace": "ignored"}
OVERRIDES = {"searcher.max_length": {"batches": 4}, "description": "made thrice"}


def test_a_command_python_and_a_flow_create_the_same_experiment(
    shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    config = shell.config()
    (shell.folder / "template.yaml").write_text(yaml.safe_dump(TEMPLATE))
    assert shell.run("template", "set", "base", "template.yaml").returncode == 0
    settings = ["--config", "searcher.max_length={batches: 4}", "--config", "description=made thrice"]
    told = shell.run("experiment", "create", config, str(shell.model), "--template", "base", "--no-follow", *settings)
    assert told.returncode == 0, told.stderr

    wait_until(lambda: running_address(shell.home) is not None)  # one that is busy may take its time to answer
    address = read_address(shell.home / "control.json")
    assert address is not None
    with Client(address) as client:
        trek.Experiment(config, shell.model, overrides=OVERRIDES, template="base", client=client)
    shown = capsys.readouterr().err

    (shell.folder / "flow.py").write_text(
        textwrap.dedent(f"""
            import trek

            flow = trek.Flow("thrice")
            flow.experiment({config!r}, {str(shell.model)!r}, name="train", overrides={OVERRIDES!r}, template="base")
        """)
    )
    done = shell.run("flow", "run", "flow.py")
    assert done.returncode == 0, done.stderr
    log = shell.run("flow", "logs", "thrice", "train").stdout

    by_command, by_python, by_flow = (shell.experiment(number) for number in (1, 2, 3))
    assert by_command["provenance"] == by_python["provenance"] == by_flow["provenance"]
    assert by_command["provenance"]["trek"] == trek.__version__
    assert by_command["archive"] == by_python["archive"] == by_flow["archive"]
    (label,) = by_flow["labels"]
    assert label.startswith("flow:")
    assert by_flow["config"].pop("labels") == [label]
    assert by_command["config"].pop("labels") == by_python["config"].pop("labels") == []
    assert by_command["config"] == by_python["config"] == by_flow["config"]
    assert by_command["config"]["max_restarts"] == TEMPLATE["max_restarts"]
    for output in (told.stderr, shown, log):
        assert "trek: warning: no effect here: workspace (use labels)." in output
