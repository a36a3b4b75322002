"""PushRules: the rules of a push, each sent once; parameters and tables name theirs by its number."""

from __future__ import annotations

from collections.abc import Mapping

from trek.errors import InputError
from trek.ps.protocol import messages as pb
from trek.ps.rules import Rule


class PushRules:
    """Rules by number, in the order they are asked for."""

    def __init__(self, default: Rule | None, by_name: Mapping[str, Rule]) -> None:
        self._default = default
        self._by_name = by_name
        self._numbers: dict[Rule, int] = {}

    def rule(self, name: str) -> Rule:
        """The rule of a parameter or table; InputError if it has none."""
        rule = self._by_name.get(name, self._default)
        if rule is None:
            raise InputError(f"there is no rule for {name!r}. Pass rule=trek.ps.Rule.named('SGD', lr=0.1), or rules.")
        return rule

    def index(self, name: str) -> int:
        """The number of that rule."""
        return self._numbers.setdefault(self.rule(name), len(self._numbers))

    def described(self) -> list[pb.Rule]:
        """The rules, as they are sent."""
        return [pb.Rule(kind=rule.kind, settings=rule.settings) for rule in self._numbers]
