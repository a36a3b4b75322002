"""What is secret in configs and texts, and that nothing of it is shown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from trek.errors import ConfigError
from trek.experiments.config import ExperimentConfig
from trek.experiments.masking import (
    MASK,
    check_unmasked,
    masked,
    masked_at,
    masked_text,
    redacted,
    secrecy,
    secret_values,
)

SECRET_NAMES = [
    *["password", "DB_PASSWORD", "PGPASSWORD", "dbPassword", "passwd", "pwd", "MYSQL_PWD", "passphrase", "PASSPHRASE"],
    *["secret", "client-secret", "aws_secret_access_key", "api_key", "api-key", "apiKey", "APIKEY", "api_keys"],
    *["X-Api-Key", "access_key", "AccessKeyId", "private-key", "ssh_key", "signing_key", "encryption_key"],
    *["Authorization", "authorization", "bearer", "credentials", "connection_string", "ConnectionStrings"],
    *["webhook_url", "api key", "Api.Key", "account-key"],
]
TEXT_NAMES = [
    *["token", "TOKEN", "hf_token", "HFToken", "auth-token", "auth_tokens", "accessToken", "GITHUBTOKEN", "tokens"],
    *["auth", "DB_PASS", "github_pat", "cookie", "token_value"],
]
HARMLESS_NAMES = [
    *["max_tokens", "maxTokens", "num_tokens", "n_tokens", "tokenizer", "tokenizer_name", "token_dim", "token_dropout"],
    *[
        "pad_token",
        "eos_token",
        "mask_token",
        "special_tokens",
        "stop_tokens",
        "vocab_tokens",
        "token_type",
        "max_token",
    ],
    *["key", "image_key", "sort_key", "keys", "monkey", "passes", "num_passes", "path", "author", "authors", "lr"],
    *["tokenization", "bypass_layers", "compass", "keyboard", "dataset", "max_token", "pin_memory", "query_key_value"],
]


@pytest.mark.parametrize("value", ["hunter2", 12345678, 0.5, ["hunter2"], {"value": "hunter2"}, {"a": [{"b": 1}]}])
@pytest.mark.parametrize("name", SECRET_NAMES)
def test_the_values_of_secret_keys_are_masked_whatever_they_are(name: str, value: Any) -> None:
    """Lists, numbers, `api-key`, `passphrase`, `pwd` and `Authorization` used to be shown."""
    assert masked({"deep": [{name: value}]}) == {"deep": [{name: MASK}]}


@pytest.mark.parametrize("name", TEXT_NAMES)
def test_tokens_are_masked_where_they_are_text(name: str) -> None:
    assert masked({name: "hunter2"}) == {name: MASK}
    assert masked({name: {"type": "categorical", "vals": ["hunter2", "b"]}}) == {name: MASK}
    assert masked({name: {"type": "const", "val": "hunter2"}}) == {name: MASK}
    assert masked({name: ["hunter2"]}) == {name: MASK}
    for count in (4096, {"type": "int", "minval": 1, "maxval": 4096}):
        assert masked({name: count}) == {name: count}


@pytest.mark.parametrize("name", HARMLESS_NAMES)
def test_what_models_count_and_read_is_shown(name: str) -> None:
    assert secrecy(name) == "none"
    for value in ("<pad>", 4096, ["a"]):
        assert masked({name: value}) == {name: value}


@pytest.mark.parametrize("value", [None, True, False, "", [], {}])
def test_what_holds_nothing_is_shown(value: Any) -> None:
    assert masked({"password": value}) == {"password": value}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgres://u:hunter2@h/db", f"postgres://u:{MASK}@h/db"),
        ("postgres://u:hun@ter/2@h/db", f"postgres://u:{MASK}@h/db"),
        ("see s3://AKIA:hunter2@b/x and more", f"see s3://AKIA:{MASK}@b/x and more"),
        ("https://ghp_0123456789abcdefghij@host/x", f"https://{MASK}@host/x"),
        ("ssh://git@github.com/x", "ssh://git@github.com/x"),
        ("http://host:8080/x", "http://host:8080/x"),
        ("Server=x;Password=hunter2;Port=1", f"Server=x;Password={MASK};Port=1"),
        ('{"api_key": "hunter2", "lr": 1}', f'{{"api_key": "{MASK}", "lr": 1}}'),
        ("+  DB_PASSWORD: hunter2", f"+  DB_PASSWORD: {MASK}"),
        ("https://h/x?token=hunter2&a=1", f"https://h/x?token={MASK}&a=1"),
        ("run.py --api-key hunter2 -v", f"run.py --api-key {MASK} -v"),
        ("run.py --password=hunter2", f"run.py --password={MASK}"),
        ("authorization: Bearer hunter2x", None),
        ("max_tokens=512 lr=0.1", "max_tokens=512 lr=0.1"),
        ("a plain sentence: nothing in it", "a plain sentence: nothing in it"),
    ],
)
def test_secrets_are_masked_inside_texts(text: str, shown: str | None) -> None:
    """Passwords in URLs used to be shown."""
    assert "hunter2" not in masked_text(text)
    assert shown is None or masked_text(text) == shown


def test_the_words_of_a_command_are_masked() -> None:
    words = ["python", "run.py", "--api-key", "hunter2", "--lr", "0.1", "--token=hunter2", "--password", "--verbose"]
    shown = ["python", "run.py", "--api-key", MASK, "--lr", "0.1", f"--token={MASK}", "--password", "--verbose"]
    assert masked({"entrypoint": words}) == {"entrypoint": shown}


_VALUES = st.text(min_size=8, max_size=40).filter(lambda text: len(text.strip()) >= 8 and MASK not in text)
_PLAIN = st.one_of(st.none(), st.booleans(), st.integers(0, 99), st.sampled_from(["adam", "relu", "x"]))


def _around(name: str, secret: str) -> st.SearchStrategy[dict[str, Any]]:
    """Configs with the secret somewhere in them."""
    forms = st.sampled_from(
        [secret, [secret], [1, [secret]], {"type": "categorical", "vals": [secret]}, {"type": "const", "val": secret}]
    )
    below = st.builds(lambda value, plain: {"lr": plain, name: value}, forms, _PLAIN)
    wrap = lambda inner: st.one_of(  # noqa: E731
        st.builds(lambda one, plain: {"a": plain, "b": one}, inner, _PLAIN),
        st.builds(lambda one, plain: {"list": [plain, one]}, inner, _PLAIN),
    )
    return st.one_of(below, wrap(below), wrap(wrap(below)))


@settings(max_examples=300, deadline=None)
@given(st.data(), st.sampled_from([*SECRET_NAMES, *TEXT_NAMES]), _VALUES)
def test_no_secret_is_left_in_any_config_or_text_about_it(data: st.DataObject, name: str, secret: str) -> None:
    config = data.draw(_around(name, secret))
    shown = masked(config)
    assert secret not in json.dumps(shown, ensure_ascii=False)
    assert masked(shown) == shown
    values = secret_values(config)
    for text in (f"before {secret} after", f"ValueError: {config!r}", json.dumps(config), f"{secret}{secret}"):
        assert secret not in redacted(text, values)
        assert json.dumps(secret)[1:-1] not in redacted(text, values)
    with pytest.raises(ConfigError, match="masked"):
        check_unmasked(shown)
    check_unmasked({"config": "without"})


@given(st.text(max_size=300))
def test_any_text_can_be_masked(text: str) -> None:
    assert masked_text(masked_text(text)) == masked_text(text)
    redacted(text, secret_values({"password": text, "x": text}))


@pytest.mark.parametrize(
    "part", ["a", "a=", 'p="', "p='\\", "://x:", "http://a:b@", "-p ", "--p ", "Bearer ", ".-_", "\t "]
)
def test_long_texts_take_linear_time(part: str) -> None:
    text = part * (2**21 // len(part))
    masked_text(text)
    secret_values(text)


@given(st.lists(st.one_of(st.text(max_size=8), st.integers()), min_size=1, max_size=4), _VALUES)
def test_a_value_below_a_secret_key_is_masked_by_its_path(path: list[str | int], value: str) -> None:
    assert masked_at((*path, "password", 0), value) == MASK
    assume(all(secrecy(str(key)) == "none" for key in path))
    assert masked_at((*path, "lr"), 0.5) == 0.5


_SEARCHER = {"name": "single", "metric": "x", "max_length": {"batches": 10}}


@pytest.mark.parametrize(
    "part",
    [
        {"environment": {"environment_variables": {"API_KEY": ["LEAKME"]}}},
        {"environment": {"environment_variables": {"API_KEY": {"a": "LEAKME"}}}},
        {"environment": {"environment_variables": ["API_KEY=LEAKME", 7]}},
        {"hyperparameters": {"password": {"type": "int", "minval": "LEAKME", "maxval": 1}}},
        {"hyperparameters": {"token": {"type": "categorical", "vals": "LEAKME"}}},
        {"password": "LEAKME"},
        {"checkpoint_storage": {"url": "s3://AKIA:LEAKME@bucket/x", "secret-key": "LEAKME"}},
        {"checkpoint_storage": {"type": "s3", "bucket": 7, "access_key": "AK", "secret_key": "LEAKME"}},
        {"checkpoint_storage": {"url": "AKIA://u:LEAKME@bucket/x"}},
        {"entrypoint": 7, "data": {"password": "LEAKME"}},
        {"name": "LEAKME" * 50, "data": {"password": "LEAKME"}},
    ],
)
def test_errors_in_a_config_show_no_secret(part: dict[str, Any]) -> None:
    """The message of an invalid value named the value, secret or not."""
    with pytest.raises(ConfigError) as caught:
        ExperimentConfig.parse({"entrypoint": "a:B", "searcher": _SEARCHER, **part})
    assert "LEAKME" not in str(caught.value)
