"""`trek trial report`: the evaluation report of a trial's best checkpoint, kept with the trial."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trek.cli import render
from trek.cli.connect import connect
from trek.cli.model_reference import source_of_checkpoint
from trek.cli.render import json_option
from trek.cli.terminal import echo, echo_json

if TYPE_CHECKING:
    from trek.train.metrics.classification import ScoreKind


@click.command("report", epilog="Runs the code of the experiment on this machine, over its validation data.")
@click.argument("trial_id", type=int)
@click.option("--label", default="", metavar="NAME", help="The tensor of a batch with the labels, if it is not found.")
@click.option(
    "--kind", type=click.Choice(["logits", "probabilities"]), help="What the model returns, if it is not clear."
)
@click.option("--classes", metavar="NAME,NAME", help="The names of the classes, in order.  [default: 0, 1, …]")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda or cuda:<index>.")
@click.option("--code", type=click.Path(path_type=Path), help="The folder with the model's code.  [default: its own]")
@json_option
@click.pass_obj
def report(
    obj: dict[str, Any],
    trial_id: int,
    *,
    label: str,
    kind: ScoreKind | None,
    classes: str | None,
    device: str,
    code: Path | None,
    as_json: bool,
) -> None:
    """Evaluate the best checkpoint of a classifier, and keep the report as artifacts of the trial.

    It has a confusion matrix, a table of classes, ROC and precision-recall curves, and the calibration.
    """
    from trek.serve.evaluation import evaluate
    from trek.train.artifacts import artifact_bytes
    from trek.train.callbacks.evaluation_report import FOLDER

    with connect(obj) as client:
        best = client.best_checkpoint_of_trial(trial_id)
        source = source_of_checkpoint(client, best.uuid, code=code, trial="")
        named = classes.split(",") if classes else None
        made = evaluate(source, label=label, kind=kind, device=device, classes=named).artifacts()
        files = {f"{FOLDER}/{name}": artifact_bytes(value, name) for name, value in made.items()}
        for name, content in files.items():
            client.add_artifact(trial_id, name, content)
    summary = json.loads(files[f"{FOLDER}/summary.json"])
    if as_json:
        table = made["classes.csv"].to_dict(orient="records")
        echo_json({"trial": trial_id, "checkpoint": best.uuid, **summary, "classes": table, "artifacts": list(files)})
        return
    render.show_table([_row(one) for one in made["classes.csv"].to_dict(orient="records")], empty="No classes.")
    echo(f"Accuracy {summary['accuracy']:.4f} over {render.count(summary['records'], 'record')}.")
    echo(f"Kept {render.count(len(files), 'artifact')} of trial {trial_id}, see `trek trial artifacts {trial_id}`.")


def _row(one: dict[str, Any]) -> dict[str, Any]:
    return {name: render.number(value) if isinstance(value, float) else value for name, value in one.items()}
