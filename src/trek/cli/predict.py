"""`trek predict`: a model over a whole data set, or over files as they appear."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from trek.cli.engine_options import engine_option
from trek.cli.model_reference import model_finder
from trek.cli.render import json_option, show_done


@click.command(
    epilog="MODEL is what `trek serve` takes; DATA a data set's name, files, a folder, a pattern or a URL. A run that "
    "was killed continues when it is repeated, or starts again if the model, its code or the data has changed."
)
@click.argument("model")
@click.argument("data")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The Parquet file to write.")
@click.option("--split", help="The split of a named data set.  [default: train]")
@click.option("--column", "columns", multiple=True, metavar="[INPUT=]COLUMN", help="The column of an input; repeated.")
@click.option("--keep", multiple=True, metavar="COLUMN", help="A column to keep.  [default: all that are not inputs]")
@click.option("--prefix", default="", help="The beginning of the names of all outputs.")
@click.option(
    "--workers", type=click.IntRange(min=1), help="Processes, or tasks on Ray.  [default: 1; on Ray, one per CPU]"
)
@click.option("--engine", default="local", show_default=True, help="Where chunks are computed: local or ray.")
@engine_option
@click.option("--batch", "batch_size", type=click.IntRange(min=1), default=256, show_default=True, help="Rows at once.")
@click.option(
    "--chunk",
    "chunk_rows",
    type=click.IntRange(min=1),
    default=8192,
    show_default=True,
    help="Rows that are written at once; what a kill cut short is done again.",
)
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda or cuda:<index>.")
@click.option("--code", type=click.Path(path_type=Path), help="The folder with the model's code.  [default: here]")
@click.option("--trial", default="", metavar="MODULE:CLASS", help="The Trial of a checkpoint that names another one.")
@click.option("--overwrite", is_flag=True, help="Replace the file.")
@click.option(
    "--watch", is_flag=True, help="DATA is a folder to watch: each file in it gets a file in the OUTPUT folder."
)
@json_option
@click.pass_obj
def predict(
    obj: dict[str, Any],
    /,
    *,
    model: str,
    data: str,
    output: Path,
    code: Path | None,
    trial: str,
    keep: tuple[str, ...],
    engine_options: tuple[str, ...],
    watch: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Write what MODEL returns for every row of DATA to a Parquet file, in order."""
    from trek.engines.option_words import read_engine_options
    from trek.serve.prediction import predict as run
    from trek.serve.watched_folder import watch as follow

    source = model_finder(model, obj=obj, code=code, trial=trial)()
    chosen = {**settings, "keep": keep or None, "engine_options": read_engine_options(engine_options)}

    def tell(path: Path) -> None:
        show_done(f"Wrote {path}.", as_json=as_json, output=str(path))

    if watch:
        follow(source, data, output, on_done=tell, **chosen)
    else:
        tell(run(source, data, output, **chosen))
