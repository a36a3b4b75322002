"""Two homes that keep checkpoints in one storage, as a shared folder or bucket invites to."""

from __future__ import annotations

from pathlib import Path

from trek.testing.shell import Shell


def test_two_homes_with_one_storage_never_meet(shell: Shell, tmp_path: Path) -> None:
    """The second home's trial "completed" at once with the first one's weights, and deleted them."""
    other = Shell(tmp_path / "other-home", tmp_path, shell.model)
    paths = []
    try:
        for home in (shell, other):
            done = home.create(checkpoint_storage__path=str(tmp_path / "shared"))
            assert done.returncode == 0, done.stderr
            [trial] = home.experiment(1)["trials"]
            assert trial["batches"] == 100, "it trained by itself"
            [found] = home.json("checkpoint", "list", "--experiment", "1")
            paths.append(Path(found["path"]))
        assert other.run("experiment", "delete", "1", "--yes").returncode == 0
        assert [path.exists() for path in paths] == [True, False]
        best = shell.json("checkpoint", "best", "1")
        assert shell.run("checkpoint", "verify", best["uuid"]).returncode == 0
    finally:
        other.clean_up()
