"""The parts of a server that need no process: batches, choices, tickets, settings."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trek.errors import InputError
from trek.serve.batch_runner import BatchRunner, Job
from trek.serve.handlers import open_handler
from trek.serve.model_pool import take_batch
from trek.serve.server import Server
from trek.serve.settings import ServeSettings
from trek.serve.tickets import MAX_ATTEMPTS, MAX_HELD_BYTES, Pieces, Ticket
from trek.serve.weighted_choice import WeightedChoice
from trek.testing.serving import source_of


def _job(text: str) -> Job:
    return Job("records", {}, memoryview(bytearray(text.encode())))


def test_a_bad_request_does_not_fail_those_beside_it() -> None:
    runner = BatchRunner(
        open_handler(source_of("trek.testing.served_functions:double")), model="m", version="1", max_rows=2
    )
    jobs = ['{"x": 1}', "{", '{"x": -1}', '[{"x": 2}, {"x": 3}, {"x": 4}]', '{"z": 1}', '{"x": [1, 2]}']
    found = runner.run([_job(text) for text in jobs])
    assert [one.status for one in found] == [200, 400, 500, 200, 400, 200]
    assert json.loads(found[3].answer.body) == [{"y": 4}, {"y": 6}, {"y": 8}]
    assert "ValueError: negative" in json.loads(found[2].answer.body)["error"]


def test_the_model_never_sees_more_rows_than_the_limit() -> None:
    runner = BatchRunner(
        open_handler(source_of("trek.testing.served_functions:slow")), model="m", version="1", max_rows=2
    )
    [found] = runner.run([_job(json.dumps([{"x": 0}] * 5))])
    assert [row["together"] for row in json.loads(found.answer.body)] == [2, 2, 2, 2, 1]


@given(st.dictionaries(st.text(min_size=1), st.integers(1, 20), min_size=1, max_size=4))
def test_versions_get_their_shares_of_any_run_of_requests(weights: dict[str, int]) -> None:
    choice, total = WeightedChoice(weights), sum(weights.values())
    found = Counter(choice.next() for _ in range(2 * total))
    assert found == {version: 2 * weight for version, weight in weights.items()}


def test_a_version_without_weight_gets_no_request() -> None:
    choice = WeightedChoice({"1": 1, "2": 0})
    assert {choice.next() for _ in range(5)} == {"1"}


@pytest.mark.parametrize("weights", [{}, {"1": 0}, {"1": -1, "2": 2}])
def test_weights_that_make_no_sense_are_refused(weights: dict[str, float]) -> None:
    with pytest.raises(InputError, match="weights must be"):
        WeightedChoice(weights)


def test_a_batch_is_what_waits_and_a_suspect_is_alone() -> None:
    async def run() -> list[int]:
        loop = asyncio.get_running_loop()
        waiting = deque(Ticket("records", {}, b"", loop.create_future()) for _ in range(6))
        waiting[3].attempts = 1
        sizes = []
        while waiting:
            sizes.append(len(take_batch(waiting, 2, max_bytes=100)))
        return sizes

    assert asyncio.run(run()) == [2, 1, 1, 2]


def test_a_batch_is_no_larger_than_a_request_may_be() -> None:
    async def run() -> list[int]:
        loop = asyncio.get_running_loop()
        waiting = deque(Ticket("records", {}, b"x" * size, loop.create_future()) for size in (4, 6, 1, 12, 10))
        return [len(take_batch(waiting, 8, max_bytes=10)) for _ in range(4)]

    assert asyncio.run(run()) == [2, 1, 1, 1]


def test_pieces_of_a_slow_reader_stay_few() -> None:
    async def run() -> list[bytes | None]:
        pieces, most = Pieces(), 0

        async def add() -> None:
            nonlocal most
            for number in range(100):
                await pieces.room()
                pieces.add(bytes([number]) * (MAX_HELD_BYTES // 4))
                most = max(most, pieces._held.qsize())
            pieces.end()

        adding = asyncio.ensure_future(add())
        found = []
        while (piece := await pieces.take()) is not None:
            found.append(piece[:1])
            await asyncio.sleep(0)
        await adding
        assert most <= 5
        return found

    assert asyncio.run(run()) == [bytes([number]) for number in range(100)]


def test_a_request_is_given_up_after_a_few_workers() -> None:
    async def run() -> int:
        ticket = Ticket("records", {}, b"", asyncio.get_running_loop().create_future())
        return sum(ticket.may_retry() for _ in range(10))

    assert asyncio.run(run()) == MAX_ATTEMPTS - 1


@pytest.mark.parametrize(
    "setting",
    [{"workers": 0}, {"batch": 0}, {"max_queue": -1}, {"name": "a/b"}, {"max_body_mb": 0}, {"key": ""}, {"key": " "}],
)
def test_settings_that_make_no_sense_are_refused(setting: dict[str, object]) -> None:
    with pytest.raises(InputError, match=next(iter(setting))):
        ServeSettings(**setting)  # type: ignore[arg-type]


def test_listening_beyond_loopback_requires_a_key() -> None:
    with pytest.raises(InputError, match="requires a key"):
        Server("trek.testing.served_functions:double", host="0.0.0.0")
    Server("trek.testing.served_functions:double", host="0.0.0.0", key="secret")


def test_weights_must_be_of_versions_that_exist() -> None:
    with pytest.raises(InputError, match=r"'3', which does not exist\. Use one of: 1, 2"):
        Server(
            {"1": "trek.testing.served_functions:double", "2": "trek.testing.served_functions:double"}, weights={"3": 1}
        )
