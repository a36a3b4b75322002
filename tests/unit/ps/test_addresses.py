"""Where a parameter server is now."""

from __future__ import annotations

from pathlib import Path

from trek.ps.addresses import current_address


def test_a_server_that_was_moved_is_found_by_its_first_address(tmp_path: Path) -> None:
    environ = {"TREK_MEMBER_DIR": str(tmp_path), "TREK_SERVER_ADDRESSES": "10.0.0.1:5,10.0.0.2:6"}
    assert current_address(("10.0.0.2", 6), environ=environ) == ("10.0.0.2", 6)
    (tmp_path / "addresses").write_text("coordinator=10.0.0.9:1\nserver=10.0.0.1:5,10.0.0.3:7")
    assert current_address(("10.0.0.2", 6), environ=environ) == ("10.0.0.3", 7)
    assert current_address(("10.0.0.1", 5), environ=environ) == ("10.0.0.1", 5)
    assert current_address(("10.0.0.8", 8), environ=environ) == ("10.0.0.8", 8), "not one of this job"
    assert current_address(("10.0.0.2", 6), environ={}) == ("10.0.0.2", 6)
