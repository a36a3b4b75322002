"""Manifests that the real schemas of KubeRay accept, scripts, hostfiles, and the image they need."""

from __future__ import annotations

import functools
import gzip
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from tests.conftest import SHARED_DATA
from trek.cli.main import trek as command
from trek.clusters import RENDERERS
from trek.clusters.base import ClusterSpec
from trek.clusters.kuberay import manifest
from trek.engines.hosts import Host, read_hostfile
from trek.errors import InputError

REPOSITORY = Path(__file__).resolve().parents[3]
FULL = ClusterSpec(
    name="search",
    nodes=2,
    max_nodes=8,
    cpus=8,
    gpus=1,
    memory_gb=32,
    image="registry.example/trek:1.0",
    volumes={"data": "/data"},
    secrets={"AWS_SECRET_ACCESS_KEY": "s3/secret-key"},
    namespace="team",
)


@pytest.fixture(scope="module")
def crd() -> Any:
    """The schema of a kind of KubeRay; one in which a field that it does not know is an error."""
    folder = SHARED_DATA / "kuberay"
    if not folder.is_dir():
        pytest.skip(f"no schemas of KubeRay at {folder}")

    @functools.cache
    def schema(kind: str) -> Any:
        text = gzip.decompress((folder / f"ray.io_{kind.lower()}s.yaml.gz").read_bytes())
        versions = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["spec"]["versions"]
        (found,) = [one for one in versions if one["name"] == "v1"]
        return jsonschema.Draft202012Validator(_closed(found["schema"]["openAPIV3Schema"]))

    return schema


def _closed(schema: Any, *, is_metadata: bool = False) -> Any:
    """Kubernetes drops unknown fields silently; here they are errors."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value, is_metadata=key == "metadata") for key, value in schema.items()}
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict) and not is_metadata:
        closed.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        closed.pop("type", None)
    return closed


@pytest.mark.parametrize(
    "spec",
    [
        ClusterSpec(image="i"),
        FULL,
        ClusterSpec(image="i", command=("trek", "experiment", "create", "a b.yaml", ".")),
    ],
    ids=["least", "full", "job"],
)
def test_manifests_are_what_kuberay_knows(spec: ClusterSpec, crd: Any) -> None:
    made = manifest(spec)
    crd(made["kind"]).validate(made)
    assert yaml.safe_load(RENDERERS.load("kuberay")().render(spec)) == made


def test_a_wrong_field_would_be_found(crd: Any) -> None:
    made = manifest(FULL)
    made["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["imagee"] = "x"
    with pytest.raises(jsonschema.ValidationError, match="imagee"):
        crd("RayCluster").validate(made)


def test_a_manifest_says_what_was_asked_for() -> None:
    made = manifest(FULL)
    (workers,) = made["spec"]["workerGroupSpecs"]
    assert (workers["minReplicas"], workers["maxReplicas"]) == (2, 8)
    assert made["spec"]["enableInTreeAutoscaling"] is True
    (pod,) = workers["template"]["spec"]["containers"]
    assert pod["resources"]["limits"] == {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "1"}
    assert pod["env"] == [
        {"name": "AWS_SECRET_ACCESS_KEY", "valueFrom": {"secretKeyRef": {"name": "s3", "key": "secret-key"}}}
    ]
    assert "enableInTreeAutoscaling" not in manifest(ClusterSpec(image="i"))["spec"]


def test_a_script_of_slurm_quotes_what_it_runs() -> None:
    spec = ClusterSpec(nodes=3, gpus=2, command=("trek", "run", "it's; rm"), secrets={"TOKEN": "/secrets/my token"})
    script = RENDERERS.load("slurm")().render(spec)
    assert "#SBATCH --nodes=3\n" in script
    assert "#SBATCH --gpus-per-node=2\n" in script
    assert "TOKEN=\"$(cat '/secrets/my token')\"; export TOKEN" in script
    assert shlex.split(script.splitlines()[-1]) == ["trek", "run", "it's; rm"]


def test_a_hostfile_is_what_launch_reads(tmp_path: Path) -> None:
    spec = ClusterSpec(cpus=8, hosts=("node-1", "10.0.0.2"))
    (tmp_path / "hosts").write_text(RENDERERS.load("ssh")().render(spec))
    assert read_hostfile(tmp_path / "hosts") == [Host("node-1", 8), Host("10.0.0.2", 8)]


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("kuberay", {}, "needs an image"),
        ("kuberay", {"image": "i", "secrets": {"TOKEN": "hunter2"}}, "must refer to a key of a Secret"),
        ("kuberay", {"image": "i", "hosts": ("a",)}, "hosts has no meaning for this kind of cluster"),
        ("slurm", {}, "needs a command to run"),
        ("slurm", {"command": ("a",), "time_limit": "soon"}, "time_limit must be as Slurm writes it"),
        ("slurm", {"command": ("a",), "partition": "a\n#SBATCH"}, "is not a valid name of a partition"),
        ("slurm", {"command": ("a",), "max_nodes": 4}, "max_nodes has no meaning"),
        ("ssh", {}, "at least one host"),
        ("ssh", {"hosts": ("a b",)}, "'a b' is not a valid name of a host"),
        ("ssh", {"name": "Not Valid"}, "name must be at most 50 lower-case"),
        ("ssh", {"cpus": 0}, "cpus must be at least 1, got 0"),
        ("kuberay", {"nodes": 3, "max_nodes": 2}, "max_nodes must be at least nodes"),
        ("kuberay", {"volumes": {"data": "here"}}, "must be absolute"),
    ],
)
def test_what_cannot_work_is_refused(kind: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RENDERERS.load(kind)().render(ClusterSpec(**settings))


def test_the_command_prints_a_manifest() -> None:
    settings = ["--image", "i", "--volume", "data:/data", "--secret", "TOKEN=s/k"]
    words = ["cluster", "render", "kuberay", *settings, "--", "trek", "--version"]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0, done.output
    assert yaml.safe_load(done.output)["spec"]["entrypoint"] == "trek --version"


def test_the_dockerfile_is_pinned_and_runs_without_rights() -> None:
    lines = (REPOSITORY / "Dockerfile").read_text().splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM ")]
    assert bases
    assert all(re.fullmatch(r"[\w./-]+:\d+\.\d+\.\d+[\w.-]*", base) for base in bases), bases
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users[-1:] == ["1000"]
    assert not [line for line in lines if line.startswith("ADD ")]
    assert not re.search(r"(?i)password|secret|token|api_key", "\n".join(lines))
    copies = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    assert all((REPOSITORY / word).exists() for words in copies for word in words), copies
