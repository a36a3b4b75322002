"""What pages show of an experiment: its code, its rungs, and whether an edited config could be run."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from trek.client import models
from trek.control.layout import Layout
from trek.control.services import Services
from trek.control.store import Store
from trek.control.tables import ExperimentRow, LogTable, TrialRow
from trek.control.trials.endings import Ending
from trek.control.trials.runs import begin_run, end_run
from trek.control.trials.searching import advance
from trek.errors import ConfigError, NotFound
from trek.experiments.masking import MASK
from trek.system.clock import SystemClock
from trek.testing.control_parts import open_store
from trek.testing.trial_runner import IdleRunner

FILES = {"model_def.py": b"print('hi')\n", "data/table.bin": b"\0\1\2", "notes.txt": "größe\n".encode()}
CONFIG = {
    "name": "tiny",
    "entrypoint": "model_def:Tiny",
    "hyperparameters": {"lr": {"type": "double", "minval": 0.1, "maxval": 0.9}, "api_key": "hunter22"},
    "searcher": {
        "name": "asha", "metric": "error", "max_length": {"batches": 9}, "max_trials": 3, "num_rungs": 2, "divisor": 3,
    },
}  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = open_store(tmp_path)
    yield made
    made.close()


@pytest.fixture
def services(store: Store, tmp_path: Path) -> Services:
    made = Services.over(store, layout=Layout(tmp_path), runner=IdleRunner(), clock=SystemClock())
    data = io.BytesIO()
    with gzip.GzipFile(fileobj=data, mode="wb") as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for name, content in FILES.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    sha256 = hashlib.sha256(data.getvalue()).hexdigest()
    made.archives.put(data.getvalue(), sha256=sha256)
    made.experiments.create(models.CreateExperiment(config=CONFIG, archive=sha256), owner="ann")
    return made


def test_code_is_shown_file_by_file(services: Services) -> None:
    assert [one.path for one in services.code.files(1)] == ["data/table.bin", "model_def.py", "notes.txt"]
    assert services.code.file(1, "notes.txt").text == "größe\n"
    assert services.code.file(1, "data/table.bin").is_text is False
    with pytest.raises(NotFound, match="no file"):
        services.code.file(1, "../etc/passwd")


def fork(text: str) -> models.ForkExperiment:
    return models.ForkExperiment(config=text)


YAML = f"""
name: edited
entrypoint: model_def:Tiny
hyperparameters: {{lr: 0.5, api_key: "{MASK}"}}
searcher: {{name: single, metric: error, max_length: 5}}
"""


def test_an_edited_config_is_checked_by_lines_and_nothing_is_made(services: Services) -> None:
    good = services.experiments.check_fork(1, fork(YAML), owner="ann")
    assert (good.is_valid, good.config["name"]) == (True, "edited")
    assert good.config["hyperparameters"]["api_key"] == MASK
    bad = services.experiments.check_fork(1, fork(YAML.replace("max_length: 5", "max_length: many")), owner="ann")
    assert (bad.is_valid, bad.line) == (False, 5)
    assert "max_length" in bad.message
    assert services.experiments.check_fork(1, fork("a: ["), owner="ann").is_valid is False
    assert len(services.experiments.all()) == 1


def test_secrets_that_were_not_edited_stay_with_their_owner_alone(services: Services, store: Store) -> None:
    made = services.experiments.fork(1, fork(YAML), owner="ann")
    with store.reading() as session:
        assert session.get_one(ExperimentRow, made.id).config["hyperparameters"]["api_key"] == "hunter22"
    assert services.experiments.check_fork(1, fork(YAML), owner="eve").is_valid is False
    with pytest.raises(ConfigError, match="masked"):
        services.experiments.fork(1, fork(YAML), owner="eve")


def test_variables_of_the_control_plane_do_not_get_into_a_fork(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_MASTER", "xyzzy")
    text = YAML.replace("name: edited", "name: ${SECRET_OF_THE_MASTER}")
    checked = services.experiments.check_fork(1, fork(text), owner="ann")
    assert checked.is_valid is False
    assert "xyzzy" not in checked.message


def test_rungs_say_who_went_on(services: Services, store: Store) -> None:
    with store.writing() as session:
        row = session.get_one(ExperimentRow, 1)
        for key, metric in enumerate((0.5, 0.1, 0.9)):
            advance(session, row, lambda one, k=key, m=metric: one.report(k, length=3, metric=m), now_s=0.0)  # type: ignore[misc]
    first, last = services.experiments.rungs(1)
    assert [(one.trial_id, one.metric) for one in first.entries] == [(2, 0.1), (1, 0.5), (3, 0.9)]
    assert [one.went_on for one in first.entries] == [True, True, False]  # the first to come has nobody to lose to
    assert (first.length, last.length, last.is_last, last.entries) == (3, 9, True, [])


def test_the_history_of_a_trial_names_reasons_without_secrets(services: Services, store: Store) -> None:
    with store.writing() as session:
        trial = session.get_one(TrialRow, 1)
        begin_run(session, trial, slots=[0], now_s=1.0)
        end_run(session, trial, Ending("outside", "no answer, api_key=hunter22"), now_s=2.0)
    started, restarted = services.trials.history(1)
    assert (started.kind, started.run, started.text) == ("started", 1, "with 1 process, from the beginning")
    assert restarted.kind == "restart"
    assert "hunter22" not in restarted.text
    with pytest.raises(NotFound):
        services.trials.history(99)


def test_an_outline_leads_to_any_line(services: Services, store: Store) -> None:
    texts = [f"line {number}" for number in range(2500)]
    texts[1500] = "Traceback (most recent call last):"
    with store.writing() as session:
        for position, text in enumerate(texts):
            owner = {"trial_id": 1 + position % 2, "run": 1, "rank": 0}
            session.add(LogTable(**owner, position=position, time_s=0.0, level=20, text=text))
    whole = services.logs.outline(experiment_id=1)
    assert (whole.count, len(whole.anchors), whole.tracebacks) == (2500, 3, [1500])
    page = services.logs.read(experiment_id=1, after=whole.anchors[1] - 1, limit=whole.step)
    assert page[0].text == "line 1000"
    assert services.logs.outline(trial_id=1).count == 1250
    with pytest.raises(NotFound):
        services.logs.outline(trial_id=99)
