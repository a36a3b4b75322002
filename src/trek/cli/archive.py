"""`trek archive`: a checkpoint as an archive for TorchServe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from trek.cli.model_reference import model_finder
from trek.cli.render import json_option, show_done
from trek.errors import InputError


@click.command(epilog="CHECKPOINT is a folder, a URL, NAME:VERSION of the registry or experiment:ID.")
@click.argument("checkpoint")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The archive, such as model.mar.")
@click.option("--name", help="What the model is called.  [default: the archive's name]")
@click.option("--version", default="1.0", show_default=True, help="Its version.")
@click.option("--labels", type=click.Path(path_type=Path), help="A JSON file: names of classes, in order or by index.")
@click.option("--code", type=click.Path(path_type=Path), help="The folder with the model's code.  [default: here]")
@click.option("--trial", default="", metavar="MODULE:CLASS", help="The Trial of a checkpoint that names another one.")
@click.option("--overwrite", is_flag=True, help="Replace the file.")
@json_option
@click.pass_obj
def archive(
    obj: dict[str, Any],
    /,
    *,
    checkpoint: str,
    output: Path,
    labels: Path | None,
    code: Path | None,
    trial: str,
    as_json: bool,
    **settings: Any,
) -> None:
    """Pack CHECKPOINT with its code into an archive that TorchServe and `trek serve` serve."""
    from trek.serve.archiving import archive as run

    source = model_finder(checkpoint, obj=obj, code=code, trial=trial)()
    written = run(source, output, labels=_read_labels(labels), **settings)
    show_done(f"Wrote {written}.", as_json=as_json, output=str(written))


def _read_labels(path: Path | None) -> Any:
    if path is None:
        return None
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"--labels {str(path)!r} cannot be read: {error}.") from None
    if not isinstance(found, dict | list):
        raise InputError(f"--labels {str(path)!r} must hold a JSON list or object.")
    return found
