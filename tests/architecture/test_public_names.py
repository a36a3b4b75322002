"""The public names are what `__all__` says, resolve, and cost nothing until used."""

from __future__ import annotations

import subprocess
import sys

import trek


def test_every_public_name_resolves() -> None:
    for name in trek.__all__:
        assert getattr(trek, name) is not None


def test_dir_lists_the_public_names() -> None:
    assert dir(trek) == sorted(trek.__all__)


def test_every_lazy_name_is_public() -> None:
    assert set(trek._HOMES) <= set(trek.__all__)


def test_import_loads_neither_torch_nor_pyarrow() -> None:
    code = "import sys, trek; sys.exit(bool({'torch', 'pyarrow', 'numpy', 'pydantic'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_help_loads_neither_torch_nor_pyarrow() -> None:
    code = (
        "import sys\nfrom trek.cli.main import trek\n"
        "try: trek.main(['--help'])\nexcept SystemExit: pass\n"
        "sys.exit(bool({'torch', 'pyarrow', 'numpy', 'pydantic', 'fastapi'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0


def test_the_control_plane_and_a_commands_process_load_no_torch() -> None:
    code = "import sys, trek.master.control_plane, trek.experiments.trial_worker; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_client_does_not_load_what_draws_on_terminals() -> None:
    code = "import sys, trek.client.client; sys.exit('pygments' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
