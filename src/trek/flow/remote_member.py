"""One rank of a step on a machine that does not see the runner's files: unpacks its inputs, rank 0 packs its outputs.

The request is a pickle that the runner wrote for the processes it starts; nothing else is loaded.
"""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from trek.engines.member_folder import MemberFolder
from trek.errors import TrekError
from trek.flow.artefacts import Stored, store_value
from trek.flow.artefacts.checkpoints import CheckpointKind
from trek.flow.carrying import CARRIED, carry_outputs, moved, moved_below, moved_paths, pack, unpack
from trek.flow.performing import perform_request, scratch
from trek.world import World

REQUEST, INPUTS, OUTPUTS = "request.pkl", "inputs.tar", "outputs.tar"


def main(folder: MemberFolder) -> int:
    """Perform the request; the exit code of its command, or 1 if its function failed."""
    request = pickle.loads((folder.path / REQUEST).read_bytes())  # noqa: S301 - see the module's docstring
    sys.path[:] = dict.fromkeys([*sys.path, *(path for path in request["sys_path"] if Path(path).exists())])
    inputs, attempt = folder.path / "inputs", folder.path / "attempts" / "0"
    unpack((folder.path / INPUTS).read_bytes(), inputs)
    attempt.mkdir(parents=True)
    world = World.from_env()
    if "argv" in request:
        code, answer = _run_command(request, inputs, attempt, is_keeper=world.is_leader)
    else:
        code, answer = _call(request, inputs, attempt, world)
    if world.is_leader:
        _send_home(folder, answer)
    return code


def _call(request: dict[str, Any], inputs: Path, attempt: Path, world: World) -> tuple[int, dict[str, Any]]:
    move = moved_below(inputs)
    answer = perform_request(
        request,
        attempt=attempt,
        world=world,
        place=lambda given: moved_paths(moved(given, move), move),
        keep=_with_checkpoints,
    )
    return int("error" in answer), answer


def _with_checkpoints(result: Any) -> Any:
    """`result` with copies of the checkpoints in it that training wrote elsewhere: what is in scratch comes home."""
    if type(result) in (list, tuple):
        return type(result)(_with_checkpoints(one) for one in result)
    if not CheckpointKind().accepts(result) or Path(result.path).is_relative_to(scratch()):
        return result
    copied = shutil.copytree(result.path, scratch() / Path(result.path).name)
    return CheckpointKind().load(scratch(), {"name": copied.name})


def _run_command(
    request: dict[str, Any], inputs: Path, attempt: Path, *, is_keeper: bool
) -> tuple[int, dict[str, Any]]:
    """Run the command with the paths that its files have here, and store what it had to write."""
    folder = attempt / "outputs"
    folder.mkdir()
    words = [
        word.replace(request["outputs"], str(folder)).replace(str(CARRIED), str(inputs)) for word in request["argv"]
    ]
    argv = [sys.executable if words[0] in ("python", "python3") else words[0], *words[1:]]
    code = subprocess.run(argv, env={**os.environ, "TREK_OUTPUT_DIR": str(folder)}, check=False).returncode
    if code or not is_keeper:
        return code, {}
    try:
        return 0, {"outputs": [stored.to_json() for stored in _stored_outputs(request["output_names"], attempt)]}
    except TrekError as error:
        return 1, {"error": str(error), "traceback": ""}


def _stored_outputs(names: tuple[str, ...], attempt: Path) -> list[Stored]:
    from trek.flow.gangs import store_output

    if not names:
        return [store_value(None, attempt / "output_0")]
    return [store_output(attempt, name, index) for index, name in enumerate(names)]


def _send_home(folder: MemberFolder, answer: dict[str, Any]) -> None:
    if not answer:
        return  # its exit code says it all
    try:
        carried, folders = carry_outputs(answer)
    except TrekError as error:
        carried, folders = {"error": str(error), "traceback": ""}, {}
    folder.write(OUTPUTS, pack(folders))
    folder.write_outcome(carried)


if __name__ == "__main__":
    sys.exit(main(MemberFolder.from_env()))
