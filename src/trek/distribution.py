"""Distribution: the name under which package indexes know Trek, and how its optional packages are installed.

The index's `trek` is another project: nothing that a user or a machine runs may ask for it.
"""

from __future__ import annotations

from trek._version import __version__
from trek.errors import InputError

DISTRIBUTION = "trek-ml"


def install_command(extra: str, *, pinned: bool = False) -> str:
    """The shell command that installs Trek with its optional packages `extra`; `pinned`: of this version."""
    return f"pip install '{DISTRIBUTION}[{extra}]{f'=={__version__}' if pinned else ''}'"


def package_missing(what: str, package: str, *, extra: str) -> InputError:
    """The error for `what`, which needs the optional package that `extra` brings."""
    return InputError(f"{what} needs the package {package}, which is not installed. Run `{install_command(extra)}`.")
