"""Things to look at on the web page, for the pictures of the documentation; see `make pictures`.

A large search and a list of experiments are written as rows, since to train them would take hours; the flow and the
model are real.
"""

from __future__ import annotations

import json
import math
import random
import sqlite3
import time
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

from trek.testing.web_site import WebSite

NAMES = (
    "resnet18-cifar10", "bert-base-sst2", "deepfm-criteo", "gpt2-small-wikitext", "unet-lesions", "mobilenet-flowers",
    "lstm-electricity", "vit-tiny-imagenette", "wav2vec-commands", "tabnet-forest", "gcn-citations", "dqn-cartpole",
)  # fmt: skip
STATES = ("completed", "completed", "paused", "completed", "errored", "completed", "completed", "killed")
LENGTHS = (4000, 1000, 250, 250, 1000, 250)
FLOW = """
import trek

flow = trek.Flow("churn")

def fetch():
    return list(range(100))

def clean(rows):
    return rows[1:]

def features(rows):
    return [row * 2 for row in rows]

def train(rows):
    return sum(rows)

def evaluate(model, rows):
    return model / len(rows)

rows = flow.step(clean, flow.step(fetch))
table = flow.step(features, rows)
model = flow.step(train, table)
flow.step(evaluate, model, rows)
"""


def places(site: WebSite) -> dict[str, str]:
    """Where there is something to see, by the name of the picture; what is missing is made first."""
    known = {one.name: one.id for one in site.client.experiments()}
    number = known[NAMES[0]] if NAMES[0] in known else fill(site)
    trials = [trial.id for trial in site.client.trials(number)]
    run = site.client.flow_runs("churn")[0].id
    return {
        "experiment": f"/experiments/{number}",
        "trials": f"/experiments/{number}?tab=trials",
        "hyperparameters": f"/experiments/{number}?tab=hparams",
        "trial": f"/trials/{trials[0]}",
        "compare": f"/compare?trials={','.join(map(str, trials[:5]))}",
        "flow": f"/flows/churn/{run}?step=train",
    }


def save_picture(page: Any, path: Path) -> None:
    """With at most 256 colours: a quarter of the size, and nobody sees the difference."""
    from PIL import Image

    page.wait_for_timeout(500)  # what moves comes to rest
    picture = Image.open(BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


def fill(site: WebSite) -> int:
    """Everything; returns the id of the large search."""
    notes = "# A small search\n\nWhich **learning rate** fits a line best? See the `Search` tab."
    site.client.change_experiment(1, name="line-search", description=notes, labels=["demo", "search"])
    with closing(sqlite3.connect(site.shell.home / "control.db", timeout=60)) as rows, rows:
        rows.row_factory = sqlite3.Row
        config = _config(rows, "line-search", labels=["demo", "search"], description=notes)
        rows.execute("UPDATE experiments SET config = ? WHERE id = 1", (config,))
        for at, name in enumerate(NAMES[1:]):
            _experiment(rows, name, state=STATES[at % len(STATES)], trials=1 + at % 3, seed=at)
        number = _experiment(rows, NAMES[0], state="completed", trials=24, seed=99)
    (site.shell.folder / "churn.py").write_text(FLOW)
    for _ in range(2):
        assert site.shell.run("flow", "run", "churn.py").returncode == 0
    best = site.client.checkpoints(experiment_id=1)[0].uuid
    site.client.create_model("line", description="Fits a line")
    site.client.register_version("line", checkpoint=best, notes="best of the search")
    return number


def _experiment(rows: Any, name: str, *, state: str, trials: int, seed: int) -> int:
    generator = random.Random(seed)  # noqa: S311 - for pictures
    now = time.time() - 3600 * (seed % 20)
    labels = [name.split("-")[0], "baseline"][: 1 + seed % 2]
    config = _config(rows, name, labels=labels, description="")
    changed = {"name": name, "state": state, "labels": json.dumps(labels), "config": config, "description": ""}
    number = _copy(rows, "experiments", 1, **changed, owner=("ann", "ben", "eva")[seed % 3], created_s=now,
                   started_s=now, ended_s=now + 900 * (1 + seed % 9), progress=generator.uniform(0.2, 0.9)
                   if state in ("paused", "killed") else 1.0)  # fmt: skip
    best: tuple[float, int | None] = (math.inf, None)
    for key in range(trials):
        best = min(best, _trial(rows, number, key, generator=generator, now=now))
    rows.execute("UPDATE experiments SET best_metric = ?, best_trial = ? WHERE id = ?", (*best, number))
    return number


def _config(rows: Any, name: str, **changed: Any) -> str:
    (config,) = rows.execute("SELECT config FROM experiments WHERE id = 1").fetchone()
    return json.dumps({**json.loads(config), "name": name, **changed})


def _trial(rows: Any, experiment: int, key: int, *, generator: random.Random, now: float) -> tuple[float, int]:
    rate, width, momentum = (
        10 ** generator.uniform(-4, -1),
        generator.choice([16, 32, 64]),
        generator.uniform(0.5, 0.99),
    )
    floor = 0.06 + 0.07 * abs(math.log10(rate) + 2.4) + 0.6 / width + 0.02 * generator.random()
    length = LENGTHS[key % len(LENGTHS)]
    hparams: dict[str, Any] = {"learning_rate": rate, "width": width, "momentum": momentum}
    hparams |= {"optimizer": generator.choice(["sgd", "adam"])}
    trial = _copy(rows, "trials", 1, experiment_id=experiment, key=key, hparams=json.dumps(hparams), batches=length,
                  started_s=now + 60 * key, ended_s=now + 60 * key + length / 4)  # fmt: skip
    points = [(at, _value(at, floor, rate, generator)) for at in range(10, length + 1, 10)]
    table = (
        'INSERT INTO metrics (trial_id, "group", batches, epoch, metrics, time_s, duration_s) VALUES (?,?,?,?,?,?,0)'
    )
    for group, metric in (("validation", "validation_error"), ("training", "loss")):
        rows.executemany(
            table, ((trial, group, at, at / 250, json.dumps({metric: one}), now + at) for at, one in points)
        )
    last = min(one for _, one in points)
    rows.execute("UPDATE trials SET best_metric = ? WHERE id = ?", (last, trial))
    return last, trial


def _value(at: int, floor: float, rate: float, generator: random.Random) -> float:
    return floor + 0.9 * math.exp(-at * (0.0008 + 0.05 * rate)) + 0.015 * generator.gauss(0, 1)


def _copy(rows: Any, table: str, number: int, **changed: Any) -> int:
    """A copy of a row with other values; its id."""
    row = dict(rows.execute(f"SELECT * FROM {table} WHERE id = ?", (number,)).fetchone())  # noqa: S608 - our own names
    del row["id"]
    row |= changed
    names = ", ".join(f'"{name}"' for name in row)
    made = rows.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(row))})", tuple(row.values()))  # noqa: S608
    return int(made.lastrowid)
