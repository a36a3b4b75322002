"""Masking: what is secret in a config, and how configs and texts are shown without it. Pure.

A value is secret by the name of its key; the password in a URL and what follows `Bearer` are secret anywhere. Whoever
shows a text that a trial produced (a line, an error) masks the secret values of its config in it. Only trials get
configs as they are. Everything here takes linear time, since it runs over text that anybody may have written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import quote

from trek.errors import ConfigError

MASK = "********"
MIN_CHARS = 5
"""Shorter values are not searched for in texts: they are parts of ordinary words."""

Secrecy = Literal["none", "text", "any"]
"""Whether values under a name are secret: never, if they are or hold text, or whatever they are."""

_ANY = re.compile(
    "password|passwd|passphrase|passcode|secret|credential|authorization|bearer|webhook|connectionstring|connstr|"
    "(api|access|private|signing|encryption|decryption|ssh|auth|account|master|shared|license|deploy|service|"
    "subscription)keys?"
)
_TEXT = re.compile("tokens?|pass|auth|pat|jwt|cookies?|sas|otp")
_COUNTED = re.compile(
    "num|max|min|n|total|count|avg|mean|per|vocab|pad|eos|bos|unk|mask|sep|cls|special|added|extra|new|stop|start|end|"
    "begin|first|last|next|previous|image|text|audio|video|visual|prefix|suffix|target|source|input|output|context|"
    "prompt|completion|encoder|decoder"
)
"""Words before `token` where it is a piece of text that a model reads."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W_]+")
_SETTING = re.compile(
    r"""(?<![\w.\-])(?P<name>[\w.\-]++)(?P<between>["']?\s*+(?:=|:(?!//))\s*+)"""
    r"""(?P<value>"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'|[^\s,;&"'{}\[\]()]++)"""
)
_FLAG = re.compile(r"(?<!\S)(?P<name>--?[A-Za-z][\w\-]*+)(?P<between>\s++)(?!-)(?P<value>\S++)")
_SCHEME = re.compile(r"\b(Bearer|Basic)(\s++)([A-Za-z0-9._~+/=\-]{6,})", re.IGNORECASE)
_RUN = re.compile(r"\S++")
_LONG_USER = 20
"""A user name in a URL that is at least this long is a token."""


@lru_cache(maxsize=4096)
def secrecy(name: str) -> Secrecy:
    """Whether values under this name are secret, in any case and with any separators."""
    words = [word.lower() for word in _WORD.findall(_CAMEL.sub("_", name))]
    if not words:
        return "none"
    if _ANY.search("".join(words)) or "pwd" in words:
        return "any"
    if _COUNTED.fullmatch(words[0]) and words[-1].startswith("token"):
        return "none"
    last = words[-2] if len(words) > 1 and words[-1] in ("value", "text", "string") else words[-1]
    is_joined = last.endswith(("token", "tokens")) and not last.startswith(("max", "min", "num"))
    return "text" if is_joined or _TEXT.fullmatch(last) else "none"


def masked(value: Any) -> Any:
    """A copy without secrets: of a config or a part of one."""
    if isinstance(value, Mapping):
        return {key: MASK if _is_secret(str(key), item) else masked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [MASK if is_secret else masked(item) for item, is_secret in _after_flags(value)]
    return masked_text(value) if isinstance(value, str) else value


def restored(value: Any, config: Any) -> Any:
    """`value`, an edited copy of `masked(config)`, with what is still as it was shown replaced by what it is."""
    return _restored(value, masked(config), config)


def _restored(value: Any, shown: Any, real: Any) -> Any:
    if value == shown:
        return real
    if isinstance(value, Mapping) and isinstance(shown, Mapping):
        return {key: _restored(item, shown[key], real[key]) if key in shown else item for key, item in value.items()}
    if isinstance(value, list) and isinstance(shown, list) and len(value) == len(shown):
        return [_restored(*three) for three in zip(value, shown, real, strict=True)]
    return value


def masked_text(text: str) -> str:
    """A text without the passwords of URLs, and without the values of secret settings (`password=…`, `--token …`)."""
    if ":" not in text and "=" not in text and "-" not in text and " " not in text:
        return text
    return _FLAG.sub(_mask_setting, _SETTING.sub(_mask_setting, _without_addresses(text)))


def secret_values(value: Any) -> frozenset[str]:
    """The texts that are secret in a config, as they may occur in what its trials write."""
    return frozenset(form for secret in _secrets(value) for form in _forms(secret) if len(form) >= MIN_CHARS)


def redacted(text: str, secrets: frozenset[str]) -> str:
    """A text without these values and without the passwords of URLs."""
    shown = _pattern(secrets).sub(MASK, text) if secrets else text
    return _without_addresses(shown)


def redacted_values(value: Any, secrets: frozenset[str]) -> Any:
    """A copy with `redacted` applied to every text in it."""
    if isinstance(value, Mapping):
        return {key: redacted_values(item, secrets) for key, item in value.items()}
    if isinstance(value, list):
        return [redacted_values(item, secrets) for item in value]
    return redacted(value, secrets) if isinstance(value, str) else value


def masked_at(path: tuple[str | int, ...], value: Any) -> Any:
    """`value` as it may be shown, which is at the key `path` of a config."""
    for key in reversed(path):
        value = {key: value}
    shown = masked(value)
    for key in path:
        shown = shown[key] if isinstance(shown, Mapping) else MASK
    return shown


def check_unmasked(config: Mapping[str, Any]) -> None:
    """ConfigError if masked values are left in a config, which would be stored in place of the secrets."""
    if names := list(_masked_keys(config, ())):
        raise ConfigError(
            f"{', '.join(names)}: the value is masked, since secrets of another user's experiment or template are not "
            f"copied. Give your own, such as --config {names[0]}=VALUE."
        )


def _is_secret(name: str, value: Any) -> bool:
    if value is None or isinstance(value, bool) or value in ("", [], {}):
        return False
    kind = secrecy(name)
    return kind == "any" or (kind == "text" and _holds_text(value))


def _holds_text(value: Any) -> bool:
    if isinstance(value, Mapping):  # `type` is the kind of a hyperparameter
        return any(_holds_text(item) for key, item in value.items() if key != "type")
    return any(map(_holds_text, value)) if isinstance(value, list) else isinstance(value, str)


def _after_flags(items: list[Any]) -> Iterator[tuple[Any, bool]]:
    """The items, and whether each is the value of a secret option before it, as in the words of a command."""
    before = None
    for item in items:
        is_option = isinstance(before, str) and before.startswith("-") and "=" not in before
        is_value = isinstance(item, str) and not item.startswith("-")
        yield item, is_option and is_value and secrecy(str(before)) != "none"
        before = item


def _mask_setting(match: re.Match[str]) -> str:
    value, name = match["value"], match["name"].rpartition(".")[2] or match["name"]
    kind = secrecy(name)
    is_number = value.replace(".", "", 1).isdigit()
    if kind == "none" or (kind == "text" and is_number) or MASK in value:
        return match[0]
    mark = value[0] if value[0] in "\"'" else ""
    return f"{match['name']}{match['between']}{mark}{MASK}{mark}"


def _without_addresses(text: str) -> str:
    """Without passwords in URLs and what follows Bearer or Basic."""
    if "://" in text and "@" in text:
        text = _RUN.sub(lambda match: _without_user(match[0]), text)
    return _SCHEME.sub(rf"\1\2{MASK}", text) if "earer" in text.lower() or "asic" in text.lower() else text


def _without_user(word: str) -> str:
    """A URL without its password: from the first colon to the last @, so that no odd character ends it early."""
    span = _user_span(word)
    return f"{word[: span[0]]}{MASK}{word[span[1] :]}" if span is not None else word


def _user_span(word: str) -> tuple[int, int] | None:
    """Where the password of a URL, or a token in place of a user name, begins and ends."""
    start, at = word.find("://"), word.rfind("@")
    if start < 0 or at < start:
        return None
    first = start + 3
    colon = word.find(":", first, at)
    if colon >= 0:
        return (colon + 1, at) if colon + 1 < at else None
    return (first, at) if "/" not in word[first:at] and at - first >= _LONG_USER else None


def _secrets(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item) if _is_secret(str(key), item) else _secrets(item)
    elif isinstance(value, list):
        for item, is_secret in _after_flags(value):
            yield from _leaves(item) if is_secret else _secrets(item)
    elif isinstance(value, str):
        yield from _secrets_in_text(value)


def _secrets_in_text(text: str) -> Iterator[str]:
    for match in _RUN.finditer(text) if "://" in text and "@" in text else ():
        if (span := _user_span(match[0])) is not None:
            yield match[0][span[0] : span[1]]
    for pattern in (_SETTING, _FLAG):
        for match in pattern.finditer(text):
            if _mask_setting(match) != match[0]:
                yield match["value"].strip("\"'")
    yield from (match[3] for match in _SCHEME.finditer(text))


def _leaves(value: Any) -> Iterator[str]:
    """The texts and numbers below a secret key; `type` is the kind of a hyperparameter."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key != "type":
                yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif value is not None and not isinstance(value, bool):
        yield str(value)
        if isinstance(value, str):
            yield from _secrets_in_text(value)


def _forms(secret: str) -> Iterator[str]:
    """A secret as it is, line by line, and as reprs, JSON and URLs write it."""
    for part in {secret, *secret.splitlines()}:
        yield from (part, repr(part)[1:-1], json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1])
        yield quote(part, safe="", errors="replace")


@lru_cache(maxsize=256)
def _pattern(secrets: frozenset[str]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(one) for one in sorted(secrets, key=len, reverse=True)))


def _masked_keys(value: Any, path: tuple[str, ...]) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _masked_keys(item, (*path, str(key)))
    elif isinstance(value, list):
        for item in value:
            yield from list(_masked_keys(item, path))[:1]
    elif isinstance(value, str) and MASK in value:
        yield ".".join(path)
