"""YAML that would take forever, or that contains itself, is one error."""

from __future__ import annotations

import pytest

from trek.client.safe_yaml import load_yaml
from trek.client.wire_values import MAX_DEPTH
from trek.errors import ConfigError
from trek.experiments.config import ExperimentConfig
from trek.experiments.yaml_source import parse_override

LAUGHS = "\n".join(
    ["a0: &a0 [lol, lol]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 11)), "x: 1"]
)
MERGES = "\n".join(
    ["m0: &m0 {k: 1}", *(f"m{i}: &m{i} {{<<: [{', '.join([f'*m{i - 1}'] * 10)}]}}" for i in range(1, 11))]
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (LAUGHS, "more than 100000 entries, with every alias written out"),
        (MERGES, "more than 100000 entries, with every alias written out"),
        ("a: &a [*a]", "c:1: an alias refers to what contains it"),
        ("a: &a\n  b: *a", "c:2: an alias refers to what contains it|c:1: an alias"),
        ("&a {*a : 1}", "an alias refers to what contains it|invalid YAML"),
        ("[" * 5000 + "]" * 5000, "nested at most 64 levels"),
        ("a: " + "{a: " * 70 + "1" + "}" * 70, "nested at most 64 levels"),
        ("- " * 3000 + "1", "nested at most 64 levels"),
        ("a: " + "9" * 5000, "cannot be read as YAML"),
        ("a: [", "c:1: invalid YAML"),
        ("a: !!python/object:os.system {}", "c:1: invalid YAML"),
        ("a: 2024-99-99", "cannot be read as YAML"),
        ("? [a]\n: 1", "invalid YAML"),
        ("a: \x00", "invalid YAML"),
    ],
)
def test_each_is_one_error(text: str, reason: str) -> None:
    # Ten levels of aliases took 45 s, and one that contains itself gave a traceback.
    with pytest.raises(ConfigError, match=reason) as raised:
        load_yaml(text, name="c")
    assert str(raised.value).count("cannot be read as YAML") == (reason == "cannot be read as YAML")


@pytest.mark.parametrize("text", [LAUGHS, "a: &a [*a]", "[" * 5000])
def test_overrides_and_configs_are_read_the_same_way(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_override(f"data.x={text}")
    with pytest.raises(ConfigError):
        ExperimentConfig.parse_text(text)
    with pytest.raises(ConfigError):
        ExperimentConfig.parse_text("data: {x: '${DEEP}'}", environ={"DEEP": text})


def test_aliases_as_people_use_them_work() -> None:
    text = "base: &base {lr: 0.1, betas: &b [0.9, 0.99]}\na: {<<: *base, lr: 0.2}\nc: [*b, *b]"
    read = load_yaml(text, name="c").value
    assert read["a"] == {"lr": 0.2, "betas": [0.9, 0.99]}
    assert read["c"] == [[0.9, 0.99], [0.9, 0.99]]
    assert load_yaml("", name="c").value is None
    assert load_yaml("a: " * 0 + "[" * MAX_DEPTH + "]" * MAX_DEPTH, name="c").value is not None
