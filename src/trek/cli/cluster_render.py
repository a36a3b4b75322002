"""`trek cluster render`: write what Kubernetes, Slurm or ssh take; `trek.clusters` knows their forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from trek.cli.terminal import echo_lines


@click.command("render")
@click.argument("kind")
@click.option("--name", default="trek", show_default=True, help="Name of the cluster or job.")
@click.option("--nodes", type=int, default=1, show_default=True, help="Nodes; on Kubernetes beside the head.")
@click.option("--max-nodes", type=int, help="Let the cluster grow to so many nodes when work waits.")
@click.option("--cpus", type=int, default=4, show_default=True, help="CPUs of each node.")
@click.option("--gpus", type=int, default=0, show_default=True, help="GPUs of each node.")
@click.option("--memory-gb", type=int, default=16, show_default=True, help="Memory of each node.")
@click.option("--image", default="", help="Container image with Trek and Ray.")
@click.option("--volume", "volumes", multiple=True, metavar="CLAIM:PATH", help="Mount a volume claim; repeatable.")
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    metavar="VARIABLE=REFERENCE",
    help="Variable from a secret: SECRET/KEY on Kubernetes, a file on Slurm; repeatable.",
)
@click.option("--namespace", default="", help="Namespace of Kubernetes.")
@click.option("--partition", default="", help="Partition of Slurm.")
@click.option("--time-limit", default="", help="Time limit of the Slurm job, such as 8:00:00.")
@click.option("--host", "hosts", multiple=True, help="A host that ssh reaches; repeatable.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def render_command(kind: str, volumes: Sequence[str], secrets: Sequence[str], **settings: Any) -> None:
    """Print what makes a cluster: KIND is kuberay, slurm or ssh. A COMMAND after `--` is run on it."""
    from trek.clusters import RENDERERS
    from trek.clusters.base import ClusterSpec

    renderer = RENDERERS.load(kind)()
    spec = ClusterSpec(
        **settings,
        volumes=_pairs(volumes, ":", option="--volume CLAIM:PATH"),
        secrets=_pairs(secrets, "=", option="--secret VARIABLE=REFERENCE"),
    )
    echo_lines(renderer.render(spec).rstrip("\n"))


def _pairs(given: Sequence[str], separator: str, *, option: str) -> dict[str, str]:
    from trek.errors import InputError

    pairs = {}
    for text in given:
        name, found, value = text.partition(separator)
        if not found or not name or not value:
            raise InputError(f"expected {option}, got {text!r}.")
        pairs[name] = value
    return pairs
