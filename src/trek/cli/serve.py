"""`trek serve`: a model behind HTTP, in the foreground."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from trek.cli.engine_options import engine_option
from trek.cli.model_reference import model_finder
from trek.cli.terminal import echo
from trek.errors import InputError


@click.command(
    epilog="MODEL is the folder or URL of a checkpoint, NAME:VERSION or NAME:latest of the registry, experiment:ID for "
    "the best checkpoint of an experiment, an archive such as model.mar, or module:function. SIGHUP loads it again."
)
@click.argument("models", metavar="[VERSION=]MODEL...", nargs=-1, required=True)
@click.option("--name", default="model", show_default=True, help="What the model is called in addresses.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Another one than loopback needs TREK_SERVE_KEY.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 chooses a free one.")
@click.option("--grpc-port", type=click.IntRange(0, 65535), help="Serve the protocol over gRPC there, too.")
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Processes per version.")
@click.option(
    "--batch", type=click.IntRange(min=1), default=8, show_default=True, help="The most requests answered together."
)
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:<index>.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of each worker.  [default: the cores, shared out]")
@click.option("--weight", "weights", multiple=True, metavar="VERSION=SHARE", help="A version's share of the requests.")
@click.option("--code", type=click.Path(path_type=Path), help="The folder with the model's code.  [default: here]")
@click.option("--trial", default="", metavar="MODULE:CLASS", help="The Trial of a checkpoint that names another one.")
@click.option("--max-queue", type=click.IntRange(min=1), default=256, show_default=True, help="Requests that may wait.")
@click.option("--max-body-mb", type=float, default=64.0, show_default=True, help="MiB of one request, packed or not.")
@click.option(
    "--timeout",
    "timeout_s",
    type=float,
    default=60.0,
    show_default=True,
    help="Seconds that a request may wait, or a worker take.",
)
@click.option("--access-log", metavar="FILE", help="Write a line of JSON per request there; - for stdout.")
@click.option(
    "--engine", default="local", show_default=True, help="Where the workers run: local, or ray for Ray Serve."
)
@engine_option
@click.option("--master-tokens", is_flag=True, help="Accept the tokens of the master's users.")
@click.pass_obj
def serve(
    obj: dict[str, Any],
    /,
    *,
    models: tuple[str, ...],
    weights: tuple[str, ...],
    code: Path | None,
    trial: str,
    master_tokens: bool,
    engine_options: tuple[str, ...],
    **settings: Any,
) -> None:
    """Serve MODEL over HTTP: the Open Inference Protocol at /v2, plain JSON at /predict, a description at /docs."""
    from trek.cli.master_tokens import MasterTokens
    from trek.engines.option_words import read_engine_options
    from trek.serve.server import Server
    from trek.serve.settings import ServeSettings

    found = {
        version: model_finder(place, obj=obj, code=code, trial=trial)
        for version, place in _named(models, default="1").items()
    }
    key = os.environ.get("TREK_SERVE_KEY") or None
    server = Server(
        found,
        weights={version: _share(share) for version, share in _named(weights).items()},
        settings=ServeSettings(key=key, engine_options=read_engine_options(engine_options), **settings),
        is_allowed=MasterTokens.of(obj) if master_tokens else None,
    )

    def tell(url: str) -> None:
        also = f", gRPC at {server.grpc_address}" if server.grpc_address else ""
        echo(f"Serving {server.settings.name} at {url}{also} (Ctrl-C stops it)")

    server.run(on_ready=tell)


def _named(values: tuple[str, ...], *, default: str | None = None) -> dict[str, str]:
    """`NAME=VALUE` pairs; without a name, `default`, which only one may have."""
    named: dict[str, str] = {}
    for value in values:
        name, separator, rest = value.partition("=")
        if not separator:
            name, rest = default or "", value
        if not name or not rest or name in named:
            raise InputError(f"{value!r} must be VERSION=…, with another version for each.")
        named[name] = rest
    return named


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"a weight must be a number, got {text!r}.") from None
