"""What every Handler must do, as tests: subclass `HandlerConformance` and give it the fixtures `handler` and `inputs`.

class TestMyHandler(HandlerConformance):
    @pytest.fixture
    def handler(self) -> Handler:
        return MyHandler.open(source, device="cpu")

    @pytest.fixture
    def inputs(self) -> dict[str, np.ndarray]:
        return {"image": np.zeros((4, 28, 28))}
"""

from __future__ import annotations

import numpy as np
import pytest

from trek.errors import InputError
from trek.serve.handlers.base import Arrays, Handler


class HandlerConformance:
    """The contract of `trek.serve.handlers.base`, one promise a test."""

    @pytest.fixture
    def handler(self) -> Handler:
        """Override: a loaded model."""
        raise NotImplementedError

    @pytest.fixture
    def inputs(self) -> Arrays:
        """Override: inputs of at least three different rows."""
        raise NotImplementedError

    def test_every_row_has_one_answer(self, handler: Handler, inputs: Arrays) -> None:
        """Whatever the number of rows."""
        for num_rows in (3, 1):
            outputs = handler.predict(handler.fit(_rows(inputs, slice(num_rows))))
            assert outputs
            assert {len(array) for array in outputs.values()} == {num_rows}

    def test_an_answer_does_not_depend_on_the_rows_beside_it(self, handler: Handler, inputs: Arrays) -> None:
        """A batch gives what its rows give alone, but for rounding, in the order of the rows."""
        together = handler.predict(handler.fit(inputs))
        for row in range(3):
            alone = handler.predict(handler.fit(_rows(inputs, slice(row, row + 1))))
            for name, array in alone.items():
                _assert_close(together[name][row], array[0])

    def test_the_same_inputs_give_the_same_answer(self, handler: Handler, inputs: Arrays) -> None:
        """Nothing is learned or drawn by answering."""
        first, second = (handler.predict(handler.fit(inputs)) for _ in range(2))
        assert all(np.array_equal(first[name], second[name]) for name in first)

    def test_answers_are_what_the_handler_says(self, handler: Handler, inputs: Arrays) -> None:
        """Names and shapes, where it says any."""
        outputs = handler.predict(handler.fit(inputs))
        if handler.outputs is not None:
            assert [spec.name for spec in handler.outputs] == list(outputs)
            assert [spec.shape for spec in handler.outputs] == [array.shape[1:] for array in outputs.values()]

    def test_nested_lists_do_as_arrays_do(self, handler: Handler, inputs: Arrays) -> None:
        """As JSON brings them."""
        lists = {name: array.tolist() for name, array in inputs.items()}
        expected, found = (handler.predict(handler.fit(given)) for given in (inputs, lists))
        for name, array in expected.items():
            _assert_close(found[name], array)

    def test_inputs_of_other_names_and_sizes_are_refused(self, handler: Handler, inputs: Arrays) -> None:
        """With an error that the sender can understand."""
        for wrong in ({}, {"no such input": [1]}):
            with pytest.raises(InputError):
                handler.fit(wrong)

    def test_the_inputs_are_left_as_they_were(self, handler: Handler, inputs: Arrays) -> None:
        """They may belong to several requests."""
        before = {name: array.copy() for name, array in inputs.items()}
        handler.predict(handler.fit(inputs))
        assert all(np.array_equal(before[name], inputs[name]) for name in before)


def _rows(inputs: Arrays, rows: slice) -> Arrays:
    return {name: array[rows] for name, array in inputs.items()}


def _assert_close(found: np.ndarray, expected: np.ndarray) -> None:
    if np.asarray(expected).dtype.kind == "f":
        assert np.allclose(found, expected, rtol=1e-4, atol=1e-5)
    else:
        assert np.array_equal(found, expected)
