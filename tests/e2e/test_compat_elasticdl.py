"""ElasticDL's command lines and its training loop, by whole commands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from trek.testing.shell import Shell

pytest.importorskip("sklearn")
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "compat" / "elasticdl"
ZOO = ["--model_zoo", str(EXAMPLE / "model_zoo"), "--model_def", "digits.cnn.custom_model"]


@pytest.fixture(autouse=True)
def _one_thread(shell: Shell) -> None:
    """Small models on a busy machine: several threads would wait for each other."""
    shell.variables["OMP_NUM_THREADS"] = "1"


def test_a_model_of_the_zoo_is_trained_evaluated_and_used(shell: Shell, tmp_path: Path) -> None:
    out = tmp_path / "trained"
    words = ["--training_data", "digits:train", "--validation_data", "digits:test", "--num_epochs", "6"]
    pods = ["--image_name", "gone:latest", "--minibatch_size=32", "--output", str(out)]
    done = shell.run("elasticdl", "train", *ZOO, *words, *pods, "--json")
    assert done.returncode == 0, done.stderr
    assert "no effect here: --image_name" in done.stderr
    trained = json.loads(done.stdout)
    assert trained["metrics"]["accuracy"] > 0.9
    assert (out / "model.safetensors").is_file()
    start = ["--checkpoint_filename_for_init", trained["checkpoint"], "--json"]
    found = shell.run("elasticdl", "evaluate", *ZOO, "--validation_data", "digits:test", *start)
    assert json.loads(found.stdout)["metrics"]["accuracy"] == pytest.approx(trained["metrics"]["accuracy"], abs=1e-6)
    target = tmp_path / "outputs.npy"
    used = shell.run("elasticdl", "predict", *ZOO, "--prediction_data", "digits:test", "--output", str(target), *start)
    assert json.loads(used.stdout)["rows"] == len(np.load(target))


def test_a_model_of_the_zoo_is_trained_on_parameter_servers(shell: Shell, tmp_path: Path) -> None:
    """The workers trained asynchronously, with an accuracy of 0.59 to 0.89: unlike ElasticDL, unless it is asked to."""
    pytest.importorskip("numba")
    words = ["--training_data", "digits:train", "--validation_data", "digits:test", "--num_epochs", "4"]
    servers = ["--distribution_strategy", "ParameterServerStrategy", "--num_ps_pods", "1", "--num_workers", "2"]
    size = ["--minibatch_size", "32"]
    out = tmp_path / "trained"
    done = shell.run("elasticdl", "train", *ZOO, *words, *servers, *size, "--output", str(out), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["metrics"]["accuracy"] > 0.8
    (log,) = shell.home.glob("runs/elasticdl*/metrics.jsonl")
    ages = re.findall(r'"ps_staleness": ([\d.]+)', log.read_text())
    assert set(ages) == {"0.0"}


def test_options_and_models_that_do_not_exist_are_named(shell: Shell) -> None:
    words = ["--training_data", "digits:train"]
    done = shell.run("elasticdl", "train", *ZOO[:2], "--model_def", "digits.mlp.custom_model", *words)
    assert done.returncode == 2
    assert "mlp.py not found" in done.stderr
    done = shell.run("elasticdl", "train", *ZOO, *words, "--fly", "1")
    assert (done.returncode, "option --fly is not known" in done.stderr) == (2, True)


def test_a_loop_with_the_client_trains_on_servers(shell: Shell) -> None:
    pytest.importorskip("numba")
    server = shell.start("ps", "serve", "--port", "0")
    try:
        assert server.stdout is not None
        address = server.stdout.readline().rsplit(" ", 1)[1].strip()
        command = [sys.executable, EXAMPLE / "ps_cnn.py", "--ps_addrs", address]
        done = subprocess.run(command, env=shell.env, capture_output=True, text=True, check=False)
    finally:
        server.terminate()
        server.communicate(timeout=60)
    assert done.returncode == 0, done.stderr
    before, after = (float(text) for text in re.findall(r"test accuracy: ([\d.]+)", done.stdout))
    assert before < 0.3
    assert after > 0.85
