"""`trek elasticdl train|evaluate|predict`: ElasticDL's command line for models of a model zoo.

Options about images, pods and clusters are accepted and have no effect, which is said once.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from trek.cli.render import json_option
from trek.cli.terminal import echo, echo_json
from trek.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])
STRATEGIES = {"Local": None, "AllreduceStrategy": "ddp", "ParameterServerStrategy": "ps"}
IGNORED = ("image_name", "job_name", "namespace", "docker_image_repository", "volume", "image_pull_policy",
           "restart_policy", "master_resource_request", "worker_resource_request", "ps_resource_request",
           "master_resource_limit", "worker_resource_limit", "ps_resource_limit", "envs", "cluster_spec",
           "worker_pod_priority", "master_pod_priority", "log_level", "grads_to_wait", "num_minibatches_per_task",
           "data_reader_params", "model_params", "tensorboard_log_dir")  # fmt: skip
"""Options of ElasticDL about its containers and its master."""


def _options(*, data: str) -> Callable[[F], F]:
    def add(function: F) -> F:
        for option in (
            click.option("--model_zoo", required=True, metavar="DIR", help="The folder of the models."),
            click.option("--model_def", required=True, metavar="NAME", help="Such as mnist.cnn.custom_model."),
            click.option(f"--{data}", required=True, metavar="DATA", help="A path, URL, or data set (mnist:test)."),
            click.option(
                "--minibatch_size", type=click.IntRange(min=1), default=64, show_default=True, help="Samples."
            ),
            click.argument("others", nargs=-1, type=click.UNPROCESSED),
        ):
            function = option(function)
        return json_option(function)

    return add


_LENIENT = {"ignore_unknown_options": True}


@click.group()
def elasticdl() -> None:
    """Train, evaluate and use models of a model zoo, with ElasticDL's options."""


@elasticdl.command(context_settings=_LENIENT)
@_options(data="training_data")
@click.option("--validation_data", metavar="DATA", help="By default the training data.")
@click.option("--num_epochs", type=click.IntRange(min=1), default=1, show_default=True, help="How long to train.")
@click.option("--num_workers", type=click.IntRange(min=1), default=1, show_default=True, help="Processes.")
@click.option("--num_ps_pods", type=click.IntRange(min=0), default=0, show_default=True, help="Parameter servers.")
@click.option("--distribution_strategy", type=click.Choice(list(STRATEGIES)), default="Local", help="How to train.")
@click.option("--evaluation_steps", type=click.IntRange(min=0), default=0, help="Batches between evaluations.")
@click.option("--checkpoint_steps", type=click.IntRange(min=0), default=0, help="Batches between checkpoints.")
@click.option("--checkpoint_dir", metavar="DIR", help="By default a folder of the run.")
@click.option("--output", metavar="DIR", help="Copy the trained weights there, as model.safetensors.")
def train(*, others: tuple[str, ...], as_json: bool, output: str | None, **chosen: Any) -> None:
    """Train a model."""
    from trek.compat.elasticdl import model_zoo

    _tell_ignored(others)
    result = model_zoo.train(**_fit_settings(chosen))
    if output is not None:
        _export(result.checkpoint.path, Path(output))
    found = {"checkpoint": str(result.checkpoint.path), "metrics": result.checkpoint.metrics}
    _show(found, as_json=as_json)


@elasticdl.command(context_settings=_LENIENT)
@_options(data="validation_data")
@click.option("--checkpoint_filename_for_init", "checkpoint", required=True, metavar="DIR", help="A checkpoint.")
def evaluate(*, others: tuple[str, ...], as_json: bool, **chosen: Any) -> None:
    """Evaluate a trained model."""
    from trek.compat.elasticdl import model_zoo

    _tell_ignored(others)
    _show({"metrics": model_zoo.evaluate(**chosen)}, as_json=as_json)


@elasticdl.command(context_settings=_LENIENT)
@_options(data="prediction_data")
@click.option("--checkpoint_filename_for_init", "checkpoint", required=True, metavar="DIR", help="A checkpoint.")
@click.option("--output", required=True, metavar="FILE", help="A .npy file for the outputs.")
def predict(*, others: tuple[str, ...], as_json: bool, output: str, **chosen: Any) -> None:
    """Write a trained model's outputs for every sample."""
    import numpy as np

    from trek.compat.elasticdl import model_zoo

    _tell_ignored(others)
    outputs = model_zoo.predict(**chosen).numpy()
    np.save(output, outputs)
    _show({"output": output, "rows": len(outputs)}, as_json=as_json)


def _fit_settings(chosen: dict[str, Any]) -> dict[str, Any]:
    """ElasticDL's options as those of `trek.fit`."""
    import trek

    strategy = STRATEGIES[chosen.pop("distribution_strategy")]
    periods = {"validation_period": chosen.pop("evaluation_steps"), "checkpoint_period": chosen.pop("checkpoint_steps")}
    servers, length, workers = (chosen.pop(name) for name in ("num_ps_pods", "num_epochs", "num_workers"))
    return {
        **chosen,
        "max_length": trek.epochs(length),
        "workers": workers,
        "strategy": strategy,
        "servers": max(servers, 1) if strategy == "ps" else 0,
        "name": "elasticdl",
        **{name: trek.batches(steps) for name, steps in periods.items() if steps},
    }


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
