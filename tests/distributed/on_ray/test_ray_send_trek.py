"""Nodes on which Trek is not installed, or another version of it: they are sent the Trek of whoever starts the work."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import trek
from trek.testing.ray_cluster import RayCluster, can_hide_folders
from trek.testing.shell import Shell, wait_until

SOURCE = Path(trek.__file__).parents[1]
pytestmark = [
    pytest.mark.skipif(not can_hide_folders(), reason="needs root, to hide Trek from a node"),
    pytest.mark.skipif(SOURCE.name != "src", reason="Trek is installed among other packages, which nodes need"),
]
ON_BARE = ["--engine-option", "resources={bare: 1}"]
SENDING = ["--engine-option", "send_trek=true"]


@pytest.fixture
def bare_shell(cluster: RayCluster, shell: Shell) -> Iterator[Shell]:
    """Commands, with a node of the cluster that has all packages but Trek."""
    node = cluster.add_far_node(SOURCE, bare=1)
    yield shell
    shell.clean_up()
    node.kill()


def test_a_script_runs_on_a_node_without_trek_that_was_sent_it(bare_shell: Shell, tmp_path: Path) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "script.py").write_text("import trek; print('from', trek.__file__, trek.World.from_env().size)")
    command = ["launch", "-n", "1", "--engine", "ray", *ON_BARE, "--cwd", str(folder)]
    refused = bare_shell.run(*command, "script.py")
    assert refused.returncode == 3
    assert "set the engine's option send_trek" in refused.stderr
    done = bare_shell.run(*command, *SENDING, "script.py")
    assert done.returncode == 0, done.stderr
    assert "py_modules" in done.stdout.split()[1], "it came with the job"


def test_a_trial_trains_on_a_node_without_trek(bare_shell: Shell) -> None:
    bare_shell.variables |= {"TREK_ENGINE_OPTIONS": "'resources={bare: 1}' send_trek=true", "TREK_WARM_START": "0"}
    done = bare_shell.create(
        "--no-follow", "--json",
        hyperparameters={"learning_rate": 0.05, "global_batch_size": 32},
        searcher={"name": "single", "metric": "validation_error", "max_length": {"batches": 16}},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    experiment = str(json.loads(done.stdout)["id"])
    wait_until(lambda: bare_shell.experiment(experiment)["state"] in ("completed", "errored"))
    (trial,) = bare_shell.experiment(experiment)["trials"]
    assert (trial["state"], trial["batches"], trial["error"]) == ("completed", 16, "")


def test_a_table_is_computed_by_nodes_without_trek(bare_shell: Shell, cluster: RayCluster, tmp_path: Path) -> None:
    program = tmp_path / "table.py"
    program.write_text(
        "import sys, trek\nfrom trek.data import Table, running_on\n"
        f"with running_on('ray', address={cluster.address!r}, send_trek='send' in sys.argv):\n"
        "    table = Table.of({'x': list(range(100))}, num_partitions=8).map(lambda b: {'x': b['x'] * 2})\n"
        "    print('sum', table.to_numpy()['x'].sum())\n"
    )
    refused = _python(bare_shell, program)
    assert "cannot load Trek" in refused.stderr
    assert "set send_trek" in refused.stderr
    done = _python(bare_shell, program, "send")
    assert "sum 9900" in done.stdout, done.stderr


def _python(shell: Shell, *args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *args], env=shell.env, capture_output=True, text=True, check=False)
