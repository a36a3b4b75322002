"""What an archive refuses when it is packed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trek.errors import InputError
from trek.serve.archiving import archive
from trek.testing.serving import CODE


@pytest.mark.parametrize("labels", [["minus"], ["minus", "plus", "zero"], {"0": "minus", "2": "plus"}, []])
def test_every_class_has_a_label_or_none_has(points: Path, tmp_path: Path, labels: Any) -> None:
    with pytest.raises(InputError, match=f"there are {len(labels)} labels, but the model has 2 classes"):
        archive(points, tmp_path / "points.mar", labels=labels, code=CODE)
    assert not list(tmp_path.iterdir())
