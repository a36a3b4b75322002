"""Start-up time of `import trek` and `trek --help`, compared with bare Python.

python benchmarks/start/imports.py [--repeats 10]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

COMMANDS = {
    "bare Python": ["-c", "pass"],
    "import trek": ["-c", "import trek"],
    "trek --help": ["-m", "trek", "--help"],
    "import torch": ["-c", "import torch"],
    "the training room": ["-c", "import trek; trek.fit"],
}


def main() -> None:
    """Time each command in turn; the best time counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10)
    args = parser.parse_args()
    best = dict.fromkeys(COMMANDS, float("inf"))
    for _ in range(args.repeats):
        for name, command in COMMANDS.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
            best[name] = min(best[name], time.perf_counter() - start)
    for name, seconds in best.items():
        print(f"{name:20}{seconds * 1e3:8.0f} ms{(seconds - best['bare Python']) * 1e3:8.0f} ms beyond bare Python")


if __name__ == "__main__":
    main()
