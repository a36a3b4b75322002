"""`make demo`, as a new user runs it: without a network, on the embedded data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(400)
def test_the_demo_trains_and_records_a_model_without_mnist(home: Path) -> None:
    nowhere = "http://127.0.0.1:1"  # a proxy that refuses, so that no machine with a network fetches the real thing
    environment = {**os.environ, "http_proxy": nowhere, "https_proxy": nowhere, "TREK_IDLE_S": "1"}
    demo = subprocess.run(
        [sys.executable, str(REPOSITORY / "examples" / "mnist" / "demo.py")],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    trek = [sys.executable, "-m", "trek"]
    try:
        assert demo.returncode == 0, demo.stdout + demo.stderr
        assert "digits" in demo.stdout
        assert "trek experiment describe 1" in demo.stdout
        assert (REPOSITORY / "examples" / "mnist" / "curves.png").stat().st_size > 10_000
        listed = subprocess.run([*trek, "experiment", "list", "--json"], capture_output=True, text=True, check=True)
        [experiment] = json.loads(listed.stdout)
        assert experiment["state"] == "completed"
        assert experiment["best_metric"] <= 0.03
    finally:
        subprocess.run([*trek, "cluster", "stop"], check=True, capture_output=True)
