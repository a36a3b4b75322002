"""Which members may be started warm, and which parent they belong to."""

from __future__ import annotations

import pytest

from trek.engines.warm.child import count_threads
from trek.engines.warm.rules import import_time_variables, parent_environment, parent_key, surroundings, why_not_warm

COMMAND = ["/py", "-m", "trek.train.jobs.job_worker", "x"]


def _why(argv: list[str] = COMMAND, *, env: dict[str, str] | None = None, imports: tuple[str, ...] = ("torch",)) -> str:
    return why_not_warm(argv, env=env or {}, imports=imports, executable="/py")


def test_a_module_of_trek_may_be_started_warm() -> None:
    assert _why() == ""
    assert _why(env={"PYTHONPATH": ""}) == "", "as if it were not set"
    assert _why(env={"PYTHONPATH": "/a:/b", "OMP_NUM_THREADS": "4", "CUDA_VISIBLE_DEVICES": "1"}) == ""


@pytest.mark.parametrize(
    "argv",
    [
        ["/py", "-c", "pass"],
        ["/py", "script.py"],
        ["/other", "-m", "trek.world"],
        ["/py", "-m", "json.tool"],
        ["/py", "-m"],
        ["/py", "-u", "-m", "trek.world"],
        ["ls"],
    ],
)
def test_another_command_is_a_fresh_process(argv: list[str]) -> None:
    assert "not a module of Trek" in _why(argv)


@pytest.mark.parametrize(
    ("env", "imports", "reason"),
    [
        ({}, (), "names no imports"),
        ({}, ("torch", "my_module"), "my_module may run user code"),
        ({"PYTHONPATH": "/a:relative"}, ("torch",), "working directory"),
        ({"PYTHONPATH": "/a:"}, ("torch",), "working directory"),
        ({"MKL_NUM_THREADS": "2"}, ("torch",), "MKL_NUM_THREADS"),
    ],
)
def test_what_a_fork_could_not_give_is_a_fresh_process(
    env: dict[str, str], imports: tuple[str, ...], reason: str
) -> None:
    assert reason in _why(env=env, imports=imports)


@pytest.mark.parametrize("name", ["PYTHONHASHSEED", "LD_PRELOAD", "TORCH_LOGS", "MALLOC_ARENA_MAX", "LC_ALL"])
def test_variables_that_are_read_once_make_another_parent(name: str) -> None:
    assert parent_key({name: "1"}, around={}) != parent_key({name: "2"}, around={}) != parent_key({}, around={})
    assert parent_environment({name: "1"})[name] == "1"


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "RANK", "TREK_TOKEN", "HOME"])
def test_other_variables_do_not(name: str) -> None:
    assert parent_key({name: "1"}, around={}) == parent_key({name: "2"}, around={})
    assert name not in import_time_variables({name: "1"})


def test_a_parent_has_one_thread_per_library_and_no_secret() -> None:
    env = parent_environment({"TREK_TOKEN": "secret", "OMP_NUM_THREADS": "8", "HOME": "/h"})
    assert env["OMP_NUM_THREADS"] == env["OPENBLAS_NUM_THREADS"] == env["MKL_NUM_THREADS"] == "1"
    assert "secret" not in env.values()
    assert env["HOME"] == "/h"


def test_other_surroundings_make_another_parent_and_the_same_ones_do_not() -> None:
    assert parent_key({}, around=surroundings()) == parent_key({}, around=surroundings())
    assert parent_key({}, around=surroundings()) != parent_key({}, around={**surroundings(), "trek": ["0.0", 0]})


@pytest.mark.parametrize(("given", "count"), [("3", 3), ("4,2", 4), (" 5", 5)])
def test_threads_are_those_that_the_environment_names(given: str, count: int) -> None:
    assert count_threads({"OMP_NUM_THREADS": given}) == count


@pytest.mark.parametrize("given", ["", "x", "0"])
def test_threads_are_as_many_as_cores_otherwise(given: str) -> None:
    assert count_threads({"OMP_NUM_THREADS": given}) == count_threads({})
