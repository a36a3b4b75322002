"""Archives of a database that is used from another home than before."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from trek.errors import InputError, StorageError

MakePlane = Callable[..., Any]


def test_archives_that_are_still_needed_must_be_there(make_plane: MakePlane) -> None:
    """A master on another home started, and failed later with an error of the file system."""
    plane = make_plane()
    plane.create()
    shutil.rmtree(plane.layout.archives)
    with pytest.raises(InputError, match=r"1 of 1 archives .* last used with /old on far\. Start the master"):
        plane.services.archives.check(last_place="/old on far")
    with pytest.raises(StorageError, match="is in the database, but not in"):
        plane.services.archives.get(plane.archive)


def test_archives_of_ended_experiments_are_missed_with_a_warning(
    make_plane: MakePlane, caplog: pytest.LogCaptureFixture
) -> None:
    plane = make_plane()
    plane.run_to_end(plane.create())
    plane.services.archives.check(last_place="")
    assert caplog.text == ""
    shutil.rmtree(plane.layout.archives)
    plane.services.archives.check(last_place="")
    assert "1 of 1 archives of model code in the database are not in" in caplog.text
