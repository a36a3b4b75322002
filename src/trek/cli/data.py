"""`trek data`: fetch data sets and inspect them."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import click

from trek.cli.render import json_option
from trek.cli.terminal import echo, echo_json, echo_lines


@click.group()
def data() -> None:
    """Fetch and inspect data sets."""


@data.command("list")
@json_option
def list_datasets(as_json: bool) -> None:
    """List the named data sets."""
    from trek.data.datasets import dataset_names, find_dataset

    rows = [_summary(find_dataset(name)) for name in dataset_names()]
    if as_json:
        echo_json(rows)
        return
    for row in rows:
        sizes = " + ".join(f"{count:,}" for count in row["num_rows"].values())
        status = "fetched" if row["is_fetched"] else f"{row['size_bytes'] / 1e6:.1f} MB to fetch"
        echo(f"{row['name']:<14} {sizes:<22} {status:<18} {row['title']}")


@data.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@json_option
def get(names: tuple[str, ...], as_json: bool) -> None:
    """Fetch data sets into the cache and verify their checksums."""
    from trek.data.datasets import find_dataset
    from trek.data.fetching.fetch import fetch

    rows = []
    for dataset in [find_dataset(name) for name in names]:
        paths = fetch(dataset)
        rows.append({"name": dataset.name, "files": {name: str(path) for name, path in paths.items()}})
        if not as_json:
            echo(_fetched_line(dataset.name, [str(path.parent) for path in paths.values()], dataset.size_bytes))
    if as_json:
        echo_json(rows)


@data.command()
@click.argument("name")
@click.option("--split", help="The split of a named data set.  [default: train]")
@click.option("--rows", "num_rows", default=5, show_default=True, type=click.IntRange(min=1), help="How many.")
@json_option
def show(name: str, split: str | None, num_rows: int, as_json: bool) -> None:
    """Print the first rows of a data set, a file or a folder."""
    from trek.data.plans.steps import rows_of
    from trek.data.resolve import open as open_table

    table = open_table(name, split=split)
    if as_json:
        rows = [row for batch in table.head(num_rows) for row in rows_of(batch)]
        echo_json(rows, default=lambda value: value.tolist() if hasattr(value, "tolist") else str(value))
    else:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            table.show(num_rows)
        echo_lines(printed.getvalue().removesuffix("\n"))


@data.command()
@click.argument("name")
@click.option("--split", help="The split of a named data set.  [default: train]")
@json_option
def describe(name: str, split: str | None, as_json: bool) -> None:
    """Print types and statistics of the columns of a data set, a file or a folder."""
    from trek.data.resolve import open as open_table

    frame = open_table(name, split=split).describe()
    if as_json:
        echo(frame.reset_index().to_json(orient="records"))
    else:
        echo_lines(frame.to_string(na_rep="", float_format=lambda number: f"{number:.4g}"))


def _summary(dataset: Any) -> dict[str, Any]:
    from trek.data.fetching.fetch import is_fetched

    return {
        "name": dataset.name,
        "title": dataset.title,
        "licence": dataset.licence,
        "homepage": dataset.homepage,
        "num_rows": dict(dataset.num_rows),
        "size_bytes": dataset.size_bytes,
        "is_fetched": is_fetched(dataset),
    }


def _fetched_line(name: str, folders: list[str], size_bytes: int) -> str:
    if not folders:
        return f"{name}: part of an installed package, nothing to fetch"
    return f"{name}: {len(folders)} files, {size_bytes / 1e6:.1f} MB, verified, in {folders[0]}"
