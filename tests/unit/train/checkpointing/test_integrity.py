"""Whatever happens to a checkpoint's files is noticed before anything is read from them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trek
from trek.cli.main import trek as command
from trek.errors import CheckpointError, TrekError
from trek.testing.trials import PointsTrial
from trek.train.checkpointing.manifest import OWN_CHECKSUM

HPARAMS = {"global_batch_size": 16}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, torch.Tensor]]:
    """A checkpoint, and its weights."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREK_HOME", str(tmp_path_factory.mktemp("home")))
        result = trek.fit(
            PointsTrial, hparams=HPARAMS, max_length=trek.batches(2), ema_decay=0.9, show_progress=False, name="whole"
        )
    assert result.checkpoint is not None
    return result.checkpoint.path, result.checkpoint.state_dict()


@pytest.fixture
def copy(saved: tuple[Path, Any], tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved[0], tmp_path / "copy"))


def _resume(path: Path) -> None:
    trek.Checkpoint(path).read()


def _verify(path: Path) -> None:
    done = CliRunner().invoke(command, ["checkpoint", "verify", str(path)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    if done.exit_code:
        raise CheckpointError(done.output)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_bit_flip_is_noticed(
    saved: tuple[Path, dict[str, torch.Tensor]], tmp_path: Path, data: st.DataObject
) -> None:
    """Of 60 bit flips, 20 gave silently wrong weights, and those in the manifest passed unnoticed."""
    whole, weights = saved
    name = data.draw(st.sampled_from(sorted(path.name for path in whole.iterdir())))
    content = bytearray((whole / name).read_bytes())
    bit = data.draw(st.integers(0, len(content) * 8 - 1))
    content[bit // 8] ^= 1 << bit % 8
    copy = tmp_path / "flipped"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(whole, copy)
    (copy / name).write_bytes(content)

    for notice in (lambda path: trek.Checkpoint(path).verify(), _resume, _verify):
        with pytest.raises(CheckpointError, match=r"damaged|cannot be read|has format|is invalid"):
            notice(copy)
    readers: list[Callable[[], dict[str, torch.Tensor]]] = [
        lambda: trek.Checkpoint(copy).state_dict(),
        lambda: trek.Checkpoint(copy).load(PointsTrial).state_dict(),
    ]
    is_used = name in ("manifest.json", "model.safetensors")
    if is_used:
        for read in readers:
            with pytest.raises(CheckpointError):
                read()
    else:  # what is not read is not verified: the weights are the right ones
        assert _same(readers[0](), weights)


def _same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> bool:
    return list(found) == list(expected) and all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_manifest_that_lists_no_files_does_not_pass(copy: Path) -> None:
    """`files: {}` passed the verification."""
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps({**manifest, "format": 1, "files": {}}))
    for act in (lambda: trek.Checkpoint(copy).verify(), lambda: trek.Checkpoint(copy).state_dict()):
        with pytest.raises(CheckpointError, match="does not list"):
            act()
    with pytest.raises(CheckpointError, match="does not list"):
        _resume(copy)


@pytest.mark.parametrize("missing", ["files", "uuid", "batches", "metrics", "world_size"])
def test_a_manifest_without_what_it_must_have_is_one_error(copy: Path, missing: str) -> None:
    manifest = json.loads((copy / "manifest.json").read_text())
    del manifest[missing]
    (copy / "manifest.json").write_text(json.dumps({**manifest, "format": 1}))
    with pytest.raises(CheckpointError, match=missing):
        trek.Checkpoint(copy)


def test_a_checkpoint_of_an_earlier_release_is_read_with_the_checksums_it_has(
    copy: Path, saved: tuple[Path, dict[str, torch.Tensor]]
) -> None:
    manifest = json.loads((copy / "manifest.json").read_text())
    del manifest[OWN_CHECKSUM]
    (copy / "manifest.json").write_text(json.dumps({**manifest, "format": 1}))
    trek.Checkpoint(copy).verify()
    assert _same(trek.Checkpoint(copy).state_dict(), saved[1])


def test_a_file_that_changes_after_it_was_verified_is_noticed(copy: Path) -> None:
    found = trek.Checkpoint(copy)
    found.verify()
    content = bytearray((copy / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (copy / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged"):
        found.state_dict()


def test_the_command_verifies_a_folder(copy: Path) -> None:
    done = CliRunner().invoke(command, ["checkpoint", "verify", str(copy)])
    assert (done.exit_code, done.output.split(": ")[1]) == (0, "5 files verified.\n")


# -- code that a checkpoint names


@pytest.mark.parametrize(
    "entrypoint",
    ["sys:exit", "builtins:input", "os:system", "trek.testing.trials:make_points", 5, None, "model_def", ":", "a:b:c"],
)
@pytest.mark.parametrize("trust_code", [False, True])
def test_nothing_but_a_trial_class_is_called(copy: Path, entrypoint: Any, trust_code: bool) -> None:
    """A manifest could name any callable: `sys:exit` ended the program that loaded it."""
    _name(copy, entrypoint)
    with pytest.raises(TrekError):
        trek.Checkpoint(copy).load(trust_code=trust_code)


def test_a_module_is_imported_only_for_who_trusts_it(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading a checkpoint imported whatever module its manifest named."""
    source = "from trek.testing.trials import PointsTrial\nclass Mine(PointsTrial): ...\n"
    (tmp_path / "named_by_a_checkpoint.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    _name(copy, "named_by_a_checkpoint:Mine")
    with pytest.raises(trek.errors.InputError, match="trust_code=True"):
        trek.Checkpoint(copy).load()
    assert trek.Checkpoint(copy).load(trust_code=True) is not None
    assert trek.Checkpoint(copy).load(PointsTrial) is not None


def _name(copy: Path, entrypoint: Any) -> None:
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["trial"]["entrypoint"] = entrypoint
    (copy / "manifest.json").write_text(json.dumps({**manifest, "format": 1}))
