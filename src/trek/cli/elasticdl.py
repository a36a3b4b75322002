"""`trek elasticdl train|evaluate|predict`: ElasticDL's command line for models of a model zoo.

Options about images, pods and clusters are accepted and have no effect, which is said once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click

from trek.cli.render import json_option
from trek.cli.terminal import echo, echo_json
from trek.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])
STRATEGIES = ["Local", "AllreduceStrategy", "ParameterServerStrategy"]
IGNORED = ("image_name", "image_base", "base_image", "namespace", "docker_image_repository", "docker_base_url",
           "docker_tlscert", "docker_tlskey", "volume", "image_pull_policy", "restart_policy",
           "master_resource_request", "worker_resource_request", "ps_resource_request", "master_resource_limit",
           "worker_resource_limit", "ps_resource_limit", "envs", "extra_pypi_index", "local_pkg_dir", "cluster_spec",
           "cluster_spec_json", "worker_pod_priority", "master_pod_priority", "ps_pod_priority", "yaml", "aux_params",
           "force_use_kube_config_file", "log_level", "log_file_path", "num_minibatches_per_task", "custom_data_reader",
           "data_reader_params", "prediction_outputs_processor", "tensorboard_log_dir")  # fmt: skip
"""Options of ElasticDL about its containers, its master, and readers of TensorFlow's data."""
FUNCTIONS = {
    "feed": "The function that makes samples.",
    "dataset_fn": "The older name of --feed.",
    "loss": "The function of the loss.",
    "optimizer": "The function that makes the optimizer.",
    "eval_metrics_fn": "The function that names the metrics.",
    "callbacks": "The function that makes callbacks.",
}
"""Options that name a function of the model's module."""


def _options(*, data: str) -> Callable[[F], F]:
    def add(function: F) -> F:
        for option in (
            click.option("--model_zoo", required=True, metavar="DIR", help="The folder of the models."),
            click.option("--model_def", required=True, metavar="NAME", help="Such as mnist.cnn.custom_model."),
            click.option(f"--{data}", required=True, metavar="DATA", help="A path, URL, or data set (mnist:test)."),
            click.option(
                "--minibatch_size", type=click.IntRange(min=1), default=64, show_default=True, help="Samples."
            ),
            click.option("--model_params", metavar="TEXT", help="Arguments of the model: 'units=32; name=\"a\"'."),
            click.argument("others", nargs=-1, type=click.UNPROCESSED),
            *(click.option(f"--{name}", metavar="NAME", help=text) for name, text in FUNCTIONS.items()),
        ):
            function = option(function)
        return json_option(function)

    return add


_LENIENT = {"ignore_unknown_options": True}
_COUNT, _STEPS = click.IntRange(min=1), click.IntRange(min=0)


@click.group()
def elasticdl() -> None:
    """Train, evaluate and use models of a model zoo, with ElasticDL's options."""


@elasticdl.command(context_settings=_LENIENT)
@_options(data="training_data")
@click.option("--validation_data", metavar="DATA", help="By default the training data.")
@click.option("--num_epochs", type=_COUNT, default=1, show_default=True, help="How long to train.")
@click.option("--num_workers", type=_COUNT, default=1, show_default=True, help="Processes.")
@click.option("--num_ps_pods", type=_STEPS, default=0, show_default=True, help="Parameter servers.")
@click.option("--distribution_strategy", type=click.Choice(STRATEGIES), help="By default what the numbers ask for.")
@click.option("--use_async", type=bool, default=False, help="Servers also take gradients of older parameters.")
@click.option("--lr_staleness_modulation", type=bool, default=False, help="Divide the rate of old gradients by age.")
@click.option("--grads_to_wait", type=_COUNT, default=1, help="Gradients that make one synchronous step.")
@click.option("--sync_version_tolerance", type=_STEPS, default=0, help="Versions that a gradient may be behind.")
@click.option("--get_model_steps", type=_COUNT, default=1, help="Batches between pulls of parameters.")
@click.option("--evaluation_steps", type=_STEPS, default=0, help="Batches between evaluations.")
@click.option("--log_loss_steps", type=_COUNT, help="Batches between reports.")
@click.option("--checkpoint_steps", type=_STEPS, default=0, help="Batches between checkpoints.")
@click.option("--keep_checkpoint_max", type=_STEPS, help="Newest checkpoints to keep; 0 keeps all.")
@click.option("--checkpoint_dir", metavar="DIR", help="By default a folder of the run.")
@click.option("--checkpoint_dir_for_init", "checkpoint", metavar="DIR", help="A checkpoint to begin with.")
@click.option("--job_name", default="elasticdl", show_default=True, help="The name of the run.")
@click.option("--output", metavar="DIR", help="Copy the trained weights there, as model.safetensors.")
def train(*, others: tuple[str, ...], as_json: bool, output: str | None, **chosen: Any) -> None:
    """Train a model."""
    from trek.compat.elasticdl import model_zoo
    from trek.compat.elasticdl.train_options import TrainOptions

    _tell_ignored(others)
    own = {one.name: chosen.pop(one.name) for one in fields(TrainOptions)}
    options = TrainOptions(**own)
    chosen["minibatch_size"] = options.global_batch_size
    result = model_zoo.train(**_zoo_settings(chosen), **options.fit_settings())
    if output is not None:
        _export(result.checkpoint.path, Path(output))
    found = {"checkpoint": str(result.checkpoint.path), "metrics": result.checkpoint.metrics}
    _show(found, as_json=as_json)


_trained = click.option(
    "--checkpoint_dir_for_init", "--checkpoint_filename_for_init", "checkpoint", required=True, metavar="DIR",
    help="A checkpoint.",
)  # fmt: skip


@elasticdl.command(context_settings=_LENIENT)
@_options(data="validation_data")
@_trained
def evaluate(*, others: tuple[str, ...], as_json: bool, **chosen: Any) -> None:
    """Evaluate a trained model."""
    from trek.compat.elasticdl import model_zoo

    _tell_ignored(others)
    _show({"metrics": model_zoo.evaluate(**_zoo_settings(chosen))}, as_json=as_json)


@elasticdl.command(context_settings=_LENIENT)
@_options(data="prediction_data")
@_trained
@click.option("--output", required=True, metavar="FILE", help="A .npy file for the outputs.")
def predict(*, others: tuple[str, ...], as_json: bool, output: str, **chosen: Any) -> None:
    """Write a trained model's outputs for every sample."""
    import numpy as np

    from trek.compat.elasticdl import model_zoo

    _tell_ignored(others)
    outputs = model_zoo.predict(**_zoo_settings(chosen)).numpy()
    np.save(output, outputs)
    _show({"output": output, "rows": len(outputs)}, as_json=as_json)


def _zoo_settings(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The options, with the names of functions together."""
    functions = {name: value for name in FUNCTIONS if (value := chosen[name]) is not None}
    if "dataset_fn" in functions:
        functions.setdefault("feed", functions.pop("dataset_fn"))
    others = {name: value for name, value in chosen.items() if name not in FUNCTIONS}
    return {**others, "functions": functions, "model_params": chosen["model_params"] or ""}


def _tell_ignored(others: tuple[str, ...]) -> None:
    for word in others:
        name = word.removeprefix("--").partition("=")[0]
        if not word.startswith("--"):
            continue
        if name not in IGNORED:
            raise InputError(f"option --{name} is not known. See `trek elasticdl --help`.")
        echo(f"trek: warning: no effect here: --{name}", err=True)


def _export(checkpoint: Path, folder: Path) -> None:
    import shutil

    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(checkpoint / "model.safetensors", folder)


def _show(found: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        echo_json(found)
        return
    for name, value in found.items():
        echo(f"{name}: {value}")
