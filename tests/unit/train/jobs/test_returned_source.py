"""What a train function would return that cannot be sent is refused before it is called."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest

import trek
from trek.errors import InputError
from trek.train.jobs.returned_source import check_source

called: list[str] = []


def yields(tr: trek.Traveler) -> Iterator[int]:
    called.append("yields")
    yield 1


async def waits(tr: trek.Traveler) -> int:
    called.append("waits")
    return 1


async def waits_and_yields(tr: trek.Traveler) -> AsyncIterator[int]:
    called.append("waits")
    yield 1


def returns_lambda(tr: trek.Traveler) -> Any:
    called.append("lambda")
    return {"score": 1.0, "predict": lambda x: x}


def returns_generator(tr: trek.Traveler) -> Any:
    called.append("generator")
    return 1, (x for x in range(3))


def returns_file(tr: trek.Traveler, where: str) -> Any:
    called.append("file")
    if where:
        return open(where)
    return None


REFUSED: list[tuple[Callable[..., Any], str]] = [
    (yields, "yields is a generator function, which does nothing when it is called"),
    (waits, "waits is an async function"),
    (waits_and_yields, "waits_and_yields is a generator function"),
    (returns_lambda, r"returns_lambda returns a lambda in line 35 of .*test_returned_source\.py, which cannot be sent"),
    (returns_generator, "returns_generator returns a generator in line 40"),
    (partial(returns_file, where="x"), "returns_file returns an open file in line 46"),
]


@pytest.mark.parametrize(("train", "words"), REFUSED, ids=[words.split()[0] for _, words in REFUSED])
def test_it_is_refused_before_it_is_called(train: Callable[..., Any], words: str) -> None:
    called.clear()
    with pytest.raises(InputError, match=words):
        trek.run(train, workers=1, show_progress=False)
    assert called == []


def returns_data(tr: trek.Traveler) -> Any:
    def helper() -> Any:
        return lambda: 1

    def numbers() -> Iterator[int]:
        yield 1

    return [helper()(), *numbers(), sum(x for x in range(3))]


@pytest.mark.parametrize("train", [returns_data, partial(returns_data), lambda tr: 1, print])
def test_functions_within_it_may_return_anything(train: Callable[..., Any]) -> None:
    check_source(train)
