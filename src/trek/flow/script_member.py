"""One rank of a step that several processes perform together: reads the request in its folder, rank 0 answers.

The request is a pickle that the runner wrote for the processes it starts; nothing else is loaded.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from trek.engines.member_folder import MemberFolder
from trek.flow.artefacts.classes import give_classes
from trek.flow.performing import perform
from trek.flow.randomness import seed_generators, seed_of
from trek.world import World

REQUEST = "request.pkl"


def main(folder: MemberFolder, *, attempt: Path) -> int:
    """Perform the request; 1 if the function failed, whose traceback is then on stderr."""
    request = pickle.loads((folder.path / REQUEST).read_bytes())  # noqa: S301 - see the module's docstring
    sys.path[:] = request["sys_path"]
    world = World.from_env()
    seed_generators(seed_of(request["name"], rank=world.rank))
    function = pickle.loads(request["function"])  # noqa: S301
    args, kwargs, classes = pickle.loads(request["arguments"])  # noqa: S301
    give_classes(classes)
    answer = perform(
        function,
        args,
        kwargs,
        num_outputs=request["num_outputs"],
        attempt=attempt,
        digest=request["digest"],
        is_keeper=world.is_leader,
    )
    if world.is_leader:
        folder.write_outcome(answer)
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    sys.exit(main(MemberFolder.from_env(), attempt=Path(sys.argv[1])))
