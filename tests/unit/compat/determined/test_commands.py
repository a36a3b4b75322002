"""Determined's commands as Trek's."""

from __future__ import annotations

import pytest

from trek.cli.main import COMMANDS
from trek.compat.determined.commands import NOUNS, to_trek
from trek.errors import InputError


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("experiment create const.yaml .", "experiment create const.yaml . --no-follow"),
        ("e create -f const.yaml . --config a=1", "experiment create const.yaml . --config a=1"),
        ("e continue 3 --config a=1", "experiment continue 3 --config a=1 --no-follow"),
        ("-m http://x:1 e list", "-m http://x:1 experiment list"),
        ("exp describe 1 --json", "experiment describe 1 --json"),
        ("e unarchive 3", "experiment archive --undo 3"),
        ("e cancel 3", "experiment kill 3"),
        ("e lt 3", "trial list 3"),
        ("e list-checkpoints 3", "checkpoint list --experiment 3"),
        ("e download-model-def 3", "experiment download 3"),
        ("t logs 7 -f", "trial logs 7 -f"),
        ("c desc abc", "checkpoint describe abc"),
        ("m register-version net abc", "model register net abc"),
        ("agent list", "cluster info"),
        ("preview-search a.yaml", "preview-search a.yaml"),
        ("u whoami", "user whoami"),
        ("--help", "--help"),
    ],
)
def test_old_verbs_become_treks(old: str, new: str) -> None:
    assert to_trek(old.split()) == new.split()


@pytest.mark.parametrize(
    ("old", "message"),
    [
        ("notebook start", "no counterpart: start Jupyter yourself"),
        ("deploy local cluster-up", "`trek up`"),
        ("e create --local a.yaml .", "--local has no counterpart"),
        ("fly", "not a command of Determined that Trek knows"),
        ("-u bob e list", "option '-u' has no counterpart"),
    ],
)
def test_what_has_no_counterpart_says_what_to_do(old: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        to_trek(old.split())


def test_every_noun_is_a_command() -> None:
    assert set(NOUNS) <= set(COMMANDS)
