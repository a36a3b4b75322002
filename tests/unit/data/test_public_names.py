"""The names of `trek.data` resolve, and cost nothing until used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


def test_relational_work_on_files_does_not_load_pandas(tmp_path: Path) -> None:
    """Arrow imports it for any list that becomes an array, which took a third of the memory before the first row."""
    trek.data.Table.of({"k": [1, 2, 1], "x": [0.5, 1.5, 2.5]}).persist(tmp_path / "rows")
    code = (
        "import sys, trek\n"
        "from trek import col\n"
        f"rows = trek.data.open({str(tmp_path / 'rows')!r})\n"
        "sums = rows.reduce({'x': 'sum'}, by='k')\n"
        "found = rows.filter(col('x') < 2).with_columns(y=col('x') * 2).join(sums, on='k')\n"
        "assert found.sort('y').to_arrow().num_rows == found.num_rows == 2\n"
        "sys.exit(bool({'torch', 'pandas'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
