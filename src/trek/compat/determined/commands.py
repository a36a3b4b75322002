"""The words of a `det` command as those of a `trek` command. Pure: runs nothing."""

from __future__ import annotations

from trek.errors import InputError

NOUNS = {
    "checkpoint": ("c", "checkpoint"),
    "cluster": ("a", "agent", "master"),
    "experiment": ("e", "exp", "experiment"),
    "job": ("j", "job"),
    "model": ("m", "model"),
    "preview-search": ("preview-search",),
    "template": ("tpl", "template"),
    "token": ("token",),
    "trial": ("t", "trial"),
    "user": ("u", "user"),
}
"""Trek's nouns, and Determined's names for them."""
VERBS = {
    ("checkpoint", "rm"): ["delete"],
    ("cluster", "list"): ["info"],
    ("experiment", "cancel"): ["kill"],
    ("experiment", "download-model-def"): ["download"],
    ("experiment", "unarchive"): ["archive", "--undo"],
    ("model", "list-versions"): ["versions"],
    ("model", "register-version"): ["register"],
}
"""Verbs that have another name here."""
_OTHER_NOUN = {
    "list-trials": ["trial", "list"],
    "lt": ["trial", "list"],
    "list-checkpoints": ["checkpoint", "list", "--experiment"],
    "lc": ["checkpoint", "list", "--experiment"],
}
_EVERYWHERE = {"ls": "list", "desc": "describe"}
NOT_HERE = {
    "cmd": "run the command in a shell; trials are processes of this machine or of a Ray cluster",
    "command": "run the command in a shell; trials are processes of this machine or of a Ray cluster",
    "deploy": "start a master with `trek up`",
    "notebook": "start Jupyter yourself; `trek.Experiment` works in it",
    "project": "use labels: `trek experiment label`",
    "rbac": "users have roles: `trek user create NAME --role ROLE`",
    "shell": "log in to the machine; Trek uses no containers",
    "slot": "slots are counted, not managed: `trek cluster info`",
    "tensorboard": "`trek web` shows the curves; loggers: [tensorboard] in the config writes event files",
    "workspace": "use labels: `trek experiment label`",
}
"""Nouns without a counterpart, and what to do instead."""


def to_trek(words: list[str]) -> list[str]:
    """The words of the `trek` command that does what `det WORDS` did; InputError if there is none."""
    master, rest = _split_master(words)
    if not rest:
        return [*master, "--help"]
    if rest[0] in NOT_HERE:
        raise InputError(f"det {rest[0]} has no counterpart: {NOT_HERE[rest[0]]}.")
    noun = next((noun for noun, names in NOUNS.items() if rest[0] in names), None)
    if noun is None:
        raise InputError(f"det {rest[0]} is not a command of Determined that Trek knows. See `trek --help`.")
    if len(rest) == 1 or noun == "preview-search":
        return [*master, noun, *rest[1:]]
    return [*master, *_with_verb(noun, rest[1], rest[2:])]


def _with_verb(noun: str, verb: str, rest: list[str]) -> list[str]:
    verb = _EVERYWHERE.get(verb, verb)
    if noun == "experiment" and verb in _OTHER_NOUN:
        return [*_OTHER_NOUN[verb], *rest]
    if noun == "experiment" and verb in ("create", "fork", "continue"):
        return [noun, verb, *_creation(rest)]
    return [noun, *VERBS.get((noun, verb), [verb]), *rest]


def _creation(rest: list[str]) -> list[str]:
    """There, an experiment is followed with `-f`; here, it is followed unless that is switched off."""
    if unknown := {"--local", "--test", "--test-mode"} & set(rest):
        raise InputError(f"{min(unknown)} has no counterpart: train a few batches with trek.fit instead.")
    follows = {"-f", "--follow", "--follow-first-trial"} & set(rest)
    kept = [word for word in rest if word not in ("-f", "--follow", "--follow-first-trial")]
    return kept if follows else [*kept, "--no-follow"]


def _split_master(words: list[str]) -> tuple[list[str], list[str]]:
    """`-m URL` in front, which both commands have; `-u USER` is told by the login there is."""
    taken, rest = list[str](), list(words)
    while rest and rest[0].startswith("-") and rest[0] not in ("-h", "--help"):
        option = rest.pop(0)
        if option not in ("-m", "--master"):
            raise InputError(f"option {option!r} has no counterpart. Log in with `trek user login`.")
        if not rest:
            raise InputError("-m needs the URL of a master.")
        taken += ["-m", rest.pop(0)]
    return taken, [] if rest[:1] in (["-h"], ["--help"]) else rest
