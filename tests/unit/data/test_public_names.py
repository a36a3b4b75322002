"""The names of `trek.data` resolve, and cost nothing until used."""

from __future__ import annotations

import subprocess
import sys

import trek.data


def test_every_public_name_resolves() -> None:
    for name in trek.data.__all__:
        assert getattr(trek.data, name) is not None
    assert dir(trek.data) == sorted(trek.data.__all__)


def test_importing_the_room_and_its_commands_loads_nothing_heavy() -> None:
    code = (
        "import sys, trek.data, trek.cli.data, trek.data.datasets\n"
        "trek.col('label') < 10\n"
        "trek.data.find_dataset('mnist')\n"
        "sys.exit(bool({'torch', 'pyarrow', 'numpy', 'pandas'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
