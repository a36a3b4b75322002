"""One rank of a step that several processes perform together: reads the request in its folder, rank 0 answers.

The request is a pickle that the runner wrote for the processes it starts; nothing else is loaded.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from trek.engines.member_folder import MemberFolder
from trek.flow.performing import perform_request
from trek.world import World

REQUEST = "request.pkl"


def main(folder: MemberFolder, *, attempt: Path) -> int:
    """Perform the request; 1 if the function failed, whose traceback is then on stderr."""
    request = pickle.loads((folder.path / REQUEST).read_bytes())  # noqa: S301 - see the module's docstring
    sys.path[:] = request["sys_path"]
    world = World.from_env()
    answer = perform_request(request, attempt=attempt, world=world)
    if world.is_leader:
        folder.write_outcome(answer)
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    sys.exit(main(MemberFolder.from_env(), attempt=Path(sys.argv[1])))
