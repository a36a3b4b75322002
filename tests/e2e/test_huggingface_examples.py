"""The examples with Hugging Face's models, on a slice of the reviews."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="needs transformers (extra hf)")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "huggingface"


@pytest.fixture
def folder(tmp_path: Path, shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TREK_DATA_MIRROR", str(shared_data))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path


def run(folder: Path, script: str, *words: str) -> str:
    command = [sys.executable, EXAMPLES / script, *words]
    done = subprocess.run(command, cwd=folder, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_model_is_fine_tuned_and_saved_for_transformers(folder: Path) -> None:
    printed = run(folder, "finetune.py", "--rows", "500", "--lora")
    assert "accuracy 0." in printed
    saved = {path.name for path in (folder / "reviews-model").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= saved


def test_a_language_model_learns_letters(folder: Path) -> None:
    printed = run(folder, "language_model.py", "--rows", "1000")
    loss = float(printed.split("validation loss ")[1].split()[0])
    assert loss < math.log(44) - 0.5, "what it has not learned costs the logarithm of the number of letters"
