"""RowPredictor: its fingerprint, by which a prediction that was killed continues or starts again."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from trek.errors import InputError
from trek.fingerprints import Fingerprint, fingerprint_value
from trek.serve.archiving import archive
from trek.serve.row_predictor import RowPredictor, choose_columns, load_once, make_predictor
from trek.testing.serving import CODE, source_of, train_points
from trek.train.checkpointing.stores import MANIFEST

FUNCTIONS = "trek.testing.served_functions"


def _made(place: Path | str, **changes: Any) -> RowPredictor:
    settings: Mapping[str, Any] = {"device": "cpu", "columns": {"x": "x"}, "keep": [], "batch_size": 8, **changes}
    return RowPredictor(source_of(place), **settings)


def _fingerprint(place: Path | str, **changes: Any) -> Fingerprint:
    load_once(source_of(f"{FUNCTIONS}:upper"), "cpu")  # so that it is loaded as another process loads it
    return fingerprint_value(_made(place, **changes))


@pytest.mark.parametrize(
    ("place", "changes"),
    [
        (f"{FUNCTIONS}:slow", {}),
        ("trek.testing.serving:make_layer", {}),
        (f"{FUNCTIONS}:double", {"columns": {"x": "id"}}),
        (f"{FUNCTIONS}:double", {"keep": ["id"]}),
        (f"{FUNCTIONS}:double", {"batch_size": 4}),
        (f"{FUNCTIONS}:double", {"prefix": "p_"}),
        (f"{FUNCTIONS}:double", {"device": "cuda"}),
    ],
)
def test_another_function_or_setting_is_another_prediction(place: str, changes: dict[str, Any]) -> None:
    first = _fingerprint(f"{FUNCTIONS}:double")
    assert first == _fingerprint(f"{FUNCTIONS}:double")
    assert first.digest != _fingerprint(place, **changes).digest
    assert not first.unknown


def test_a_file_that_a_function_holds_the_path_of_counts_by_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "weighted.py").write_text(_WEIGHTED)
    monkeypatch.syspath_prepend(tmp_path)
    weights = tmp_path / "weights.txt"
    weights.write_text("2")
    first = _fingerprint("weighted:scale")
    assert first == _fingerprint("weighted:scale")
    weights.write_text("3")
    assert first.outline != _fingerprint("weighted:scale").outline  # by which `persist` finds what was finished
    monkeypatch.delitem(sys.modules, "weighted")


_WEIGHTED = """
from pathlib import Path

WEIGHTS = Path(__file__).with_name("weights.txt")

def scale(x):
    return {"y": x * int(WEIGHTS.read_text())}
"""


def test_a_checkpoint_counts_by_its_content(points: Path, tmp_path: Path) -> None:
    first = _fingerprint(points)
    assert not first.unknown
    assert first == _fingerprint(points)
    assert first.digest != _fingerprint(train_points(tmp_path)).digest


def test_an_archive_counts_by_its_content(points: Path, tmp_path: Path) -> None:
    place = archive(points, tmp_path / "points.mar", labels=["minus", "plus"], code=CODE)
    first = _fingerprint(place)
    assert first == _fingerprint(place)
    assert not first.unknown
    archive(points, place, labels=["plus", "minus"], code=CODE, overwrite=True)
    assert first.digest != _fingerprint(place).digest


@pytest.mark.filterwarnings("ignore")  # those of transformers and what it imports
def test_a_folder_of_transformers_counts_by_its_files_and_is_loaded_again_when_they_change(bert: Path) -> None:
    first = _fingerprint(bert)
    assert first == _fingerprint(bert)
    assert not first.unknown
    (bert / "out.parquet").write_bytes(b"what a command writes beside a model is no part of it")
    assert first == _fingerprint(bert)
    loaded = load_once(source_of(bert), "cpu")
    config = bert / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"id2label": {"0": "worse", "1": "better"}}))
    assert first.digest != fingerprint_value(_made(bert)).digest
    assert load_once(source_of(bert), "cpu") is not loaded


def test_a_model_whose_files_change_meanwhile_is_refused(tmp_path: Path) -> None:
    place = train_points(tmp_path)
    predictor = _made(place, columns={"input_0": "x"})
    rows = pa.record_batch({"x": pa.array(np.zeros((2, 6), "float32").tolist())})
    assert predictor(rows).num_rows == 2
    (place / MANIFEST).touch()
    with pytest.raises(InputError, match=r"changed while it was used\. Repeat the command"):
        predictor(rows)


def _texts(rows: list[str]) -> pa.RecordBatch:
    return pa.record_batch({"given": pa.array(rows, pa.string()), "text": pa.array(["truth"] * len(rows), pa.string())})


def test_an_output_does_not_replace_a_column_that_is_kept() -> None:
    settings: dict[str, Any] = {"columns": {"text": "given"}, "keep": ["text"]}
    with pytest.raises(InputError, match=r"output 'text' has the name of the column 'text', .*--prefix.*--keep"):
        _made(f"{FUNCTIONS}:upper", **settings)(_texts(["a"]))
    found = _made(f"{FUNCTIONS}:upper", **settings, prefix="predicted_")(_texts(["a"]))
    assert found.to_pylist() == [{"text": "truth", "predicted_text": "A"}]


def test_known_outputs_are_compared_with_kept_columns_before_anything_is_computed(points: Path) -> None:
    settings: dict[str, Any] = {"device": "cpu", "columns": ["x"], "keep": None, "batch_size": 8}
    with pytest.raises(InputError, match="output 'output' has the name"):
        make_predictor(source_of(points), ["x", "output"], **settings)
    with pytest.raises(InputError, match="output 'output' has the name of the column 'my_output'"):
        make_predictor(source_of(points), ["x", "my_output"], **settings, prefix="my_")
    assert make_predictor(source_of(points), ["x", "output"], **{**settings, "keep": []}).reads == ["x"]


def test_no_rows_have_the_columns_of_some(points: Path) -> None:
    predictor = _made(f"{FUNCTIONS}:upper", columns={"text": "given"})
    assert predictor(_texts([])).schema == predictor(_texts(["a"])).schema
    rows = pa.record_batch({"x": pa.array(np.zeros((2, 6), "float32").tolist())})
    trained = _made(points, columns={"input_0": "x"}, keep=["x"])
    assert trained(rows.slice(0, 0)).schema == trained(rows).schema
    with pytest.raises(InputError, match=r"no rows, and model .*slow' returns nothing for none"):
        _made(f"{FUNCTIONS}:slow")(pa.record_batch({"x": pa.array([], pa.int64())}))


def test_an_input_has_one_column() -> None:
    handler = load_once(source_of(f"{FUNCTIONS}:double"), "cpu")
    with pytest.raises(InputError, match="several columns: x=a, x=b"):
        choose_columns(handler, ["x=a", "x=b"], ["a", "b"])
