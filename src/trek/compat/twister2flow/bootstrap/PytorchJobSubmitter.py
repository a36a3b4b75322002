"""`bootstrap/PytorchJobSubmitter.py`: run one training script on several processes.

    python -m trek.compat.twister2flow.bootstrap.PytorchJobSubmitter \\
        --script PytorchMnistDist.py --executor python3 --parallelism 4 --hostfile hostfile
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence

from trek.compat.twister2flow.twister2.task.PytorchTask import PytorchTask
from trek.errors import InputError, TrekError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script to its end; returns its exit code."""
    parser = argparse.ArgumentParser(prog="PytorchJobSubmitter", description="Run a script on several processes.")
    parser.add_argument("--script", required=True)
    parser.add_argument("--executor", default="python3", help="python3: the interpreter that runs Trek")
    parser.add_argument("--parallelism", type=int, default=1)
    parser.add_argument("--hostfile", help="machines: lines of 'host slots=n'")
    args = parser.parse_args(argv)
    try:
        if args.executor not in ("python", "python3"):
            raise InputError(f"--executor must be python3, got {args.executor!r}.")
        task = PytorchTask(name="job", parallelism=args.parallelism)
        task.set_script_path(args.script)
        task.hostfile = args.hostfile
        return subprocess.run(task.argv(), check=False).returncode
    except TrekError as error:
        print(f"trek: error: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
