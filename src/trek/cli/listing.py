"""What every list command offers: `--where`, `--sort`, `--limit`, `--json` and `--csv`."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trek.cli import render
from trek.cli.terminal import echo_lines
from trek.cli.where import check_names, names_in, parse_where, sort_rows
from trek.experiments.hparams import flatten

if TYPE_CHECKING:
    from pydantic import BaseModel

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Listing:
    """Which rows to show, in which order and format."""

    where: str | None
    sort: str | None
    limit: int | None
    as_json: bool
    as_csv: bool

    @property
    def enough(self) -> int | None:
        """How many rows need to be fetched; None for all, where they are filtered or sorted here."""
        return self.limit if self.where is None and self.sort is None else None

    def show(self, found: Sequence[BaseModel], *, row: Callable[[Any], Mapping[str, Any]], empty: str) -> None:
        """Print the matching rows; `row` gives the columns of the table for one item."""
        chosen = self.choose(found)
        if self.as_json:
            render.show_json(chosen)
        elif self.as_csv:
            echo_lines(_csv([flatten(item.model_dump(mode="json")) for item in chosen]).removesuffix("\n"))
        else:
            is_filtered = found and self.where is not None
            none = f"None of {len(found)} matches --where {self.where!r}." if is_filtered else empty
            render.show_table([row(item) for item in chosen], empty=none)

    def choose(self, found: Sequence[BaseModel]) -> list[Any]:
        """The matching rows, sorted and limited."""
        rows = [(item, item.model_dump(mode="json")) for item in found]
        named = [*(names_in(self.where) if self.where else ()), *([self.sort.removeprefix("-")] if self.sort else ())]
        check_names(named, [row for _, row in rows])
        if self.where:
            test = parse_where(self.where)
            rows = [pair for pair in rows if test(pair[1])]
        if self.sort:
            rows = sort_rows(rows, self.sort, get=lambda pair: pair[1])
        return [item for item, _ in rows[: self.limit]]


def listing_options(command: F) -> F:
    """Add the options; the command receives them as one `listing`."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        names = ("where", "sort", "limit", "as_json", "as_csv")
        return command(*args, listing=Listing(**{name: kwargs.pop(name) for name in names}), **kwargs)

    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    wrapped.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    for option in (
        click.option("--csv", "as_csv", is_flag=True, help="Print CSV."),
        render.json_option,
        click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Show at most N."),
        click.option("--sort", metavar="KEY", help="Sort by KEY; use -KEY for descending order."),
        click.option(
            "--where", metavar="TEST", help="Filter, such as 'hparams.lr<0.1 and (labels=beta or name~mnist)'."
        ),
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]


def _csv(rows: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    if names:
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue()
