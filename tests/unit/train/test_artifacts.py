"""Artifacts: values become files of the run, by safe names."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import matplotlib.figure
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import trek
from trek.errors import InputError
from trek.train.artifacts import artifact_bytes, artifact_name, content_type, store_artifact
from trek.train.loggers import ArtifactRow, Logger


@given(st.text(max_size=40) | st.from_regex(r"[./%\\ a-z]{1,30}", fullmatch=True))
def test_a_valid_name_never_leaves_its_folder_and_is_never_hidden(name: str) -> None:
    try:
        artifact_name(name)
    except InputError:
        return
    folder = Path("/artifacts")
    path = Path(folder, name)
    assert path.is_relative_to(folder)
    assert not set(path.parts) & {"..", "."}
    assert path.as_posix() == f"/artifacts/{name}"
    assert name.isascii()
    assert name.isprintable()


@pytest.mark.parametrize(
    "name", ["", "..", "a/../b", "/a", "a//b", ".hidden", "a\\b", "a\nb", "x" * 161, "a/", "a%2fb"]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="invalid name of an artifact"):
        artifact_name(name)


def test_only_images_that_cannot_run_anything_are_shown() -> None:
    shown = {name: content_type(name) for name in ("a.png", "a.JPG", "a.svg", "a.html", "a", "png", "a.png.html")}
    assert {name for name, kind in shown.items() if kind.startswith("image/")} == {"a.png", "a.JPG", "png"}
    assert set(shown.values()) == {"image/png", "image/jpeg", "application/octet-stream"}


def test_values_become_files_by_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    figure = matplotlib.figure.Figure(figsize=(2, 1), dpi=50)
    assert store_artifact(tmp_path / "notes.txt", None, folder=tmp_path / "kept") == (
        "notes.txt",
        tmp_path / "kept" / "notes.txt",
    )
    assert artifact_bytes(b"\0\1", "a.bin") == b"\0\1"
    assert Image.open(io.BytesIO(artifact_bytes(figure, "plots/a.png"))).size == (100, 50)
    assert artifact_bytes(frame, "a.csv") == b"a,b\n1,x\n2,y\n"
    assert pd.read_parquet(io.BytesIO(artifact_bytes(pa.Table.from_pandas(frame), "a.parquet"))).equals(frame)


@pytest.mark.parametrize(
    ("value", "mode"),
    [
        (np.full((4, 6), 128, dtype=np.uint8), "L"),
        (np.full((4, 6, 3), 128, dtype=np.uint8), "RGB"),
        (torch.full((3, 4, 6), 128 / 255), "RGB"),
        (torch.full((1, 4, 6), 128, dtype=torch.uint8), "L"),
        (Image.new("L", (6, 4), 128), "L"),
    ],
)
def test_images_are_arrays_tensors_or_pil_images(value: Any, mode: str) -> None:
    image = Image.open(io.BytesIO(artifact_bytes(value, "a.png")))
    assert (image.mode, image.size) == (mode, (6, 4))
    assert set(np.asarray(image).flatten().tolist()) == {128}


@pytest.mark.parametrize(
    ("value", "name", "words"),
    [
        ("not/there.txt", "a.txt", "artifact 'not/there.txt' not found"),
        (pd.DataFrame(), "a.xlsx", "a table must be stored as csv, json or parquet, got the suffix 'xlsx'"),
        (matplotlib.figure.Figure(), "a.txt", "a figure must be stored as one of"),
        (np.zeros(3), "a.png", r"an image must have 2 or 3 dimensions, got the shape \(3,\)"),
        (3, "a", "cannot store a int"),
        (b"", None, "needs a name for a bytes"),
    ],
)
def test_what_cannot_be_stored_is_one_clear_error(value: Any, name: str | None, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        store_artifact(value, name, folder=tmp_path)


def test_a_run_keeps_its_artifacts_and_tells_its_loggers(tmp_path: Path) -> None:
    told: list[ArtifactRow] = []

    class Listener(Logger):
        def log_artifact(self, row: ArtifactRow) -> None:
            told.append(row)

    with trek.Traveler(world=trek.World(), folder=tmp_path, loggers=[Listener()], show_progress=False) as tr:
        tr.log_artifact(b"one", "a/b.txt")
        tr.log_artifact(b"three", "a/b.txt")
        with pytest.raises(InputError, match="another one uses a part of its name"):
            tr.log_artifact(b"", "a/b.txt/c")
    assert (tmp_path / "artifacts" / "a" / "b.txt").read_bytes() == b"three"
    assert [(row.name, row.num_bytes, row.batches) for row in told] == [("a/b.txt", 3, 0), ("a/b.txt", 5, 0)]
