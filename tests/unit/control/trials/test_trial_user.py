"""What a trial learns about its control plane, and what it can reach as another user of the system."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from tests.unit.control.conftest import CONFIG, MakePlane
from trek.client import models
from trek.control.layout import Layout
from trek.control.run_as import RunAs
from trek.control.services import Services
from trek.control.store import Store
from trek.control.tables import ExperimentRow, LogTable, TrialRow
from trek.control.trials.private_variables import private_variables, shared_variables
from trek.control.trials.supervisor import Supervisor
from trek.control.trials.trial_user import check_run_as, make_passages
from trek.engines.local import LocalEngine
from trek.errors import InputError
from trek.experiments.package import pack
from trek.experiments.trial_process import TrialProcess
from trek.master.control_plane import MasterSettings
from trek.system.clock import SystemClock
from trek.testing.shell import wait_until

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of another user")


def test_a_trial_inherits_nothing_that_is_the_control_planes(
    make_plane: MakePlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial was told the path of the file with the admin's token, and inherited the way to the database."""
    monkeypatch.setenv("TREK_DB", "postgresql://trek:hunter2@db/trek")
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    plane = make_plane(
        "print(json.dumps(dict(os.environ)), flush=True); outcome('done')",
        environment={"TREK_MASTER": "http://127.0.0.1:1", "TREK_TOKEN": "narrow"},
        private_variables=private_variables(os.environ),
    )
    (plane.layout.home / "control.json").write_text('{"token": "of the admin"}')
    number = plane.create()
    plane.run_to_end(number)
    environ = json.loads(plane.services.logs.read(experiment_id=number)[0].text)
    assert "hunter2" not in json.dumps(environ)
    assert (environ["TREK_MASTER"], environ["TREK_TOKEN"]) == ("http://127.0.0.1:1", "narrow")
    assert not [name for name, value in environ.items() if (Path(value) / "control.json").exists()]
    assert not [name for name, value in environ.items() if value.endswith("control.json")]
    assert (Path(environ["TREK_MEMBER_DIR"]) / "master.url").read_text() == "http://127.0.0.1:1"


def test_caches_of_the_home_are_those_of_its_trials(make_plane: MakePlane) -> None:
    plane = make_plane("print(open(os.environ['TREK_HOME'] + '/data/digits').read(), flush=True); outcome('done')")
    (plane.layout.home / "data").mkdir()
    (plane.layout.home / "data" / "digits").write_text("fetched before")
    number = plane.create()
    plane.run_to_end(number)
    assert [line.text for line in plane.services.logs.read(experiment_id=number)] == ["fetched before"]


def test_a_running_trial_finds_a_control_plane_that_moved(make_plane: MakePlane, tmp_path: Path) -> None:
    before = make_plane("time.sleep(600)", environment={"TREK_MASTER": "http://127.0.0.1:1", "TREK_TOKEN": "t"})
    before.create()
    before.run_until(lambda: before.supervisor.running)
    (running,) = before.supervisor.running.values()
    wait_until(lambda: bool(running.gang.pids))
    after = make_plane("", environment={"TREK_MASTER": "http://127.0.0.1:2", "TREK_TOKEN": "t"})
    after.supervisor._find_gangs()
    place = TrialProcess.from_env(
        {
            "TREK_TRIAL_ID": "1",
            "TREK_RUN": "1",
            "TREK_RUN_DIR": str(tmp_path),
            "TREK_MEMBER_DIR": str(after.layout.run(after.trial()) / "rank_0"),
            "TREK_MASTER": "http://127.0.0.1:1",
            "TREK_TOKEN": "t",
        }
    )
    moved = place._relocated()
    assert moved is not None
    assert (moved.url, moved.token) == ("http://127.0.0.1:2", "t")


@pytest.mark.parametrize("name", ["root", "daemon", "nobody-is-called-this", "", "a\0b"])
def test_no_owner_runs_as_a_system_account_or_as_nobody_known(name: str) -> None:
    with pytest.raises(InputError, match=r"must not run as|does not exist"):
        RunAs("owner").user_of(name)


def test_one_user_for_all_must_exist_and_not_be_root() -> None:
    with pytest.raises(InputError, match="must not run as 'root'"):
        RunAs("root").user_of("ann")
    assert RunAs("nobody").user_of("ann").uid == pwd.getpwnam("nobody").pw_uid


@needs_root
def test_a_home_that_others_cannot_pass_through_is_named(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    settings = MasterSettings(home=tmp_path / "closed" / "trek", run_as=RunAs("nobody"))
    with pytest.raises(InputError, match="cannot pass through"):
        check_run_as(RunAs("nobody"), layout=settings.layout)
    with pytest.raises(InputError, match="Install Python and Trek where every user can read them"):
        check_run_as(RunAs("nobody"), layout=Layout(Path("/var/trek")), programs=[tmp_path / "closed" / "python"])


@needs_root
def test_a_folder_in_which_others_replace_the_masters_is_named(open_folder: Path) -> None:
    settings = MasterSettings(home=open_folder / "shared" / "trek", run_as=RunAs("nobody"))
    (open_folder / "shared").mkdir()
    for mode, owner in ((0o777, 0), (0o755, pwd.getpwnam("nobody").pw_uid)):
        (open_folder / "shared").chmod(mode)
        os.chown(open_folder / "shared", owner, 0)
        with pytest.raises(InputError, match="other users can replace what is in"):
            check_run_as(RunAs("nobody"), layout=settings.layout)


@needs_root
@pytest.mark.parametrize("is_link", [True, False])
def test_a_folder_that_another_user_made_first_is_not_used(open_folder: Path, is_link: bool) -> None:
    """In /tmp, any user could make the folder of all trials before the master's first start."""
    nobody = pwd.getpwnam("nobody").pw_uid
    (open_folder / "elsewhere").mkdir()
    if is_link:
        (open_folder / "trials").symlink_to(open_folder / "elsewhere")
    else:
        (open_folder / "trials").mkdir()
        os.chown(open_folder / "trials", nobody, nobody)
    with pytest.raises(InputError, match="must be a folder of the master"):
        make_passages(open_folder / "trials")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can pass through, as pytest's are not."""
    folder = Path(tempfile.mkdtemp(prefix="trek-run-as-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


# Looks around as the trial's user, and leaves a checkpoint and an outcome.
_SCRIPT = r"""
id -un
cat "$SECRET_HOME/control.db" >/dev/null 2>&1 && echo "read the database"
ls "$SECRET_HOME" >/dev/null 2>&1 && echo "listed the home"
echo x > "$TREK_RUN_DIR/mine" && echo "wrote to its run"
echo x > "$TREK_HOME/mine" && echo "wrote to its home"
mkdir "$CHECKPOINTS/one" && echo "wrote a checkpoint"
rm -rf "$(dirname "$TREK_MEMBER_DIR")/rank_0.json" 2>/dev/null || echo "cannot remove what is the master's"
cat "$TREK_MEMBER_DIR/master.url" && echo
echo "HOME=$HOME"
printf '{"rank": 0, "kind": "done"}' > "$TREK_MEMBER_DIR/outcome.json"
"""


def run_as_nobody(folder: Path, script: str, **spec: Any) -> tuple[Layout, list[str]]:
    """Run a trial that is a shell script as the user nobody; the layout, and what the trial printed."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    settings = MasterSettings(home=home, run_as=RunAs("nobody"))
    layout = settings.layout
    check_run_as(RunAs("nobody"), layout=layout)
    (folder / "model").mkdir()
    package = pack(folder / "model")
    store, clock = Store.at(home), SystemClock()

    def row_of(trial_id: int) -> TrialRow:
        with store.reading() as session:
            return session.get_one(TrialRow, trial_id)

    supervisor = Supervisor(
        store,
        layout=layout,
        engine=LocalEngine(),
        slots=1,
        environment=lambda trial, run: {
            "TREK_MASTER": "http://127.0.0.1:1",
            "SECRET_HOME": str(home),
            "CHECKPOINTS": str(layout.trial(row_of(trial)) / "checkpoints"),
        },
        clock=clock,
        command=["/bin/sh", "-c", script],
        **spec,
    )
    services = Services.over(store, layout=layout, runner=supervisor, clock=clock)
    services.archives.put(package.data, sha256=package.sha256)
    number = services.experiments.create(models.CreateExperiment(config=CONFIG, archive=package.sha256)).id

    def has_ended() -> bool:
        supervisor.tick()
        return services.experiments.get(number).state in models.ENDED

    wait_until(has_ended)
    with store.reading() as session:
        texts = list(session.scalars(select(LogTable.text).order_by(LogTable.id)))
        assert session.get_one(ExperimentRow, number).state == "completed", texts
    store.close()
    return layout, texts


@needs_root
def test_a_trial_of_another_user_cannot_read_the_masters_home(open_folder: Path) -> None:
    """Every trial ran as the user of the master, and could read its token, its database and all other trials."""
    layout, texts = run_as_nobody(open_folder, _SCRIPT)
    assert texts == [
        "nobody",
        "wrote to its run",
        "wrote to its home",
        "wrote a checkpoint",
        "cannot remove what is the master's",
        "http://127.0.0.1:1",
        f"HOME={layout.user_homes / 'nobody'}",
    ]


@needs_root
def test_a_trial_of_another_user_inherits_what_the_machine_needs_alone(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials of others inherited the cloud keys of the master, and whatever else was in its environment."""
    secrets = ("AWS_SECRET_ACCESS_KEY", "SMTP_URL", "PGPASSWORD", "TREK_SERVE_KEY", "TREK_JOB_SECRET", "http_proxy")
    for name in (*secrets, "LC_TIME", "NCCL_DEBUG", "LICENCE_SERVER"):
        monkeypatch.setenv(name, f"CANARY-{name}")
    shared = shared_variables(os.environ, passed=["LICENCE_SERVER"])
    # Set after the master has started, as libraries do.
    monkeypatch.setenv("LATE_SECRET", "CANARY-late")
    script = "env; " + _SCRIPT
    _, texts = run_as_nobody(open_folder, script, shared_variables=shared)
    canaries = [line.partition("=")[0] for line in texts if "CANARY" in line]
    assert sorted(canaries) == ["LC_TIME", "LICENCE_SERVER", "NCCL_DEBUG"]


def test_variables_are_passed_on_with_run_as_alone(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--pass-env A is for --run-as"):
        MasterSettings(home=tmp_path, pass_env=("A",)).check()
