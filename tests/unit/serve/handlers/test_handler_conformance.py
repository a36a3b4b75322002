"""Every kind of handler keeps the contract."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from trek.errors import InputError
from trek.serve.archiving import archive
from trek.serve.handlers import open_handler
from trek.serve.handlers.base import Arrays, Handler
from trek.testing.handler_conformance import HandlerConformance
from trek.testing.serving import CODE, source_of

POINTS = np.random.default_rng(6).normal(size=(4, 6)).astype("float32")


class TestTrialHandler(HandlerConformance):
    @pytest.fixture
    def handler(self, points: Path) -> Handler:
        return open_handler(source_of(points))

    @pytest.fixture
    def inputs(self) -> Arrays:
        return {"input_0": POINTS}


class TestFunctionHandler(HandlerConformance):
    @pytest.fixture
    def handler(self) -> Handler:
        return open_handler(source_of("trek.testing.served_functions:double"))

    @pytest.fixture
    def inputs(self) -> Arrays:
        return {"x": np.arange(5)}


class TestModuleHandler(HandlerConformance):
    @pytest.fixture
    def handler(self) -> Handler:
        return open_handler(source_of("trek.testing.serving:Doubling"))

    @pytest.fixture
    def inputs(self) -> Arrays:
        return {"x": POINTS}


class TestArchiveHandler(HandlerConformance):
    @pytest.fixture
    def handler(self, points: Path, tmp_path: Path) -> Handler:
        return open_handler(source_of(archive(points, tmp_path / "points.mar", labels=["minus", "plus"], code=CODE)))

    @pytest.fixture
    def inputs(self) -> Arrays:
        return {"input_0": POINTS}


@pytest.mark.filterwarnings("ignore")  # those of transformers and what it imports
class TestPretrainedHandler(HandlerConformance):
    @pytest.fixture
    def handler(self, bert: Path) -> Handler:
        return open_handler(source_of(bert))

    @pytest.fixture
    def inputs(self) -> Arrays:
        return {"text": np.array(["good", "bad bad bad", "good bad"], dtype=object)}

    @pytest.mark.parametrize("labels", [None, ["no", "yes"]])
    def test_classes_have_their_names_and_an_archive_answers_the_same(
        self, labels: list[str] | None, handler: Handler, bert: Path, inputs: Arrays, tmp_path: Path
    ) -> None:
        (bert / "weights.bin").write_bytes(b"a pickle")
        packed = archive(bert, tmp_path / "bert.mar", labels=labels)
        found, same = (one.predict(one.fit(inputs)) for one in (handler, open_handler(source_of(packed))))
        assert set(found["prediction"]) <= {"no", "yes"}
        assert np.array_equal(found["logits"], same["logits"])
        assert found["prediction"].tolist() == same["prediction"].tolist()
        with zipfile.ZipFile(packed) as members:
            assert "weights.bin" not in members.namelist()

    def test_a_folder_that_is_no_classifier_says_why(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text("{}")
        with pytest.raises(InputError, match="is not a text classifier of transformers"):
            open_handler(source_of(tmp_path))
