"""A failure in a few lines."""

from __future__ import annotations

from trek.engines import Exit, describe_failure, to_error
from trek.engines.failure import MAX_LINES, exit_status, find_exception

TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "    step()",
    "ValueError: the user's own",
)


def test_the_last_line_names_rank_host_pid_code_and_exception() -> None:
    text = describe_failure(Exit(1, "node1", 42, 1, ("noise", *TRACEBACK)), num_workers=4)
    assert text.splitlines() == [
        *TRACEBACK,
        "trek: error: rank 1 of 4 on node1 (pid 42) exited with code 1: ValueError: the user's own",
    ]


def test_a_signal_is_named_with_a_hint() -> None:
    text = describe_failure(Exit(0, "node1", 42, -9), num_workers=1)
    assert "rank 0 of 1 on node1 (pid 42) was killed by SIGKILL." in text
    assert "memory" in text


def test_an_unknown_signal_keeps_its_number() -> None:
    assert "killed by signal 40" in describe_failure(Exit(0, "h", 1, -40), num_workers=1)


def test_without_a_traceback_the_last_words_are_shown() -> None:
    lines = tuple(f"line {n}" for n in range(20))
    assert describe_failure(Exit(0, "h", 1, 3, lines), num_workers=2).splitlines()[:-1] == list(lines[-5:])


def test_a_long_traceback_is_shortened_in_the_middle() -> None:
    frames = [line for n in range(40) for line in (f'  File "f{n}.py", line 1, in g', "    h()")]
    text = describe_failure(Exit(0, "h", 1, 1, (TRACEBACK[0], *frames, "KeyError: 1")), num_workers=2)
    assert len(text.splitlines()) <= MAX_LINES
    assert "KeyError: 1" in text
    assert "f39.py" in text


def test_only_the_last_of_several_tracebacks_counts_and_what_follows_it_does_not() -> None:
    lines = [
        *TRACEBACK,
        "",
        "During handling of the above exception, another one:",
        "",
        TRACEBACK[0],
        "  a",
        "OSError: x",
        "[W] late",
    ]
    assert find_exception(lines) == [TRACEBACK[0], "  a", "OSError: x"]


def test_it_becomes_an_error_with_the_users_traceback() -> None:
    error = to_error(Exit(2, "h", 9, 1, TRACEBACK), num_workers=3)
    assert (error.rank, error.process_exit_code, error.exit_code) == (2, 1, 1)
    assert error.traceback_text == "\n".join(TRACEBACK)


def test_exit_status_is_what_a_shell_shows() -> None:
    assert [exit_status(3), exit_status(-9)] == [3, 137]
