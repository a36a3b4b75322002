"""What the parts of the web page show: flows, long logs, finer curves, the search, code, notes, workers; keys too."""

from __future__ import annotations

import base64
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from trek.master.web_page import FOLDER
from trek.testing.browser import why_no_browser
from trek.testing.shell import wait_until
from trek.testing.web_site import NASTY, SEARCH, Visits, WebSite, axe_complaints, why_no_page

MISSING = why_no_browser() or why_no_page(FOLDER)
pytestmark = [pytest.mark.skipif(bool(MISSING), reason=MISSING), pytest.mark.timeout(600)]

NUM_LINES = 1_000_000
NUM_POINTS = 20_000
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
FLOW = """
import os, time
import trek

flow = trek.Flow("example")

def load(folder):
    print("loading \\x1b[31mred\\x1b[0m <b>text</b>")
    while not os.path.exists(os.path.join(folder, "go")):
        time.sleep(0.01)
    return 1

def train(value):
    return value + 1

flow.step(train, flow.step(load, FOLDER), name="train_with_a_long_name_of_its_own")
"""


def test_a_flow_is_drawn_while_it_runs_and_its_cache_hits_after(site: WebSite, open_page: Visits) -> None:
    folder = site.shell.folder
    (folder / "flow.py").write_text(FLOW.replace("FOLDER", repr(str(folder))))
    running = site.shell.start("flow", "run", "flow.py")
    try:
        wait_until(lambda: any(one.num_steps.get("running") for one in site.client.flow_runs()))
        page = open_page("/flows")
        page.click("a:has(.badge)")
        page.wait_for_selector("[aria-label^='load running']")
        page.wait_for_selector("[aria-label^='train_with_a_long']")
        assert page.locator(".graph .edge").count() == 1
        page.click("[aria-label^='load running']")
        page.wait_for_selector("pre.code .ansi-red:text-is('red')")
        assert "<b>text</b>" in page.inner_text("pre.code")
        page.wait_for_selector("text=Gives its results to")
        (folder / "go").touch()
        page.wait_for_selector("[aria-label^='load done']")
        page.wait_for_selector("h1 + .badge:has-text('done')")
        page.click("button.link:has-text('train')")
        page.wait_for_selector("section[aria-label^=train] dt:text-is('Why it ran')")
        assert axe_complaints(page) == []
    finally:
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=60)
    again = site.shell.run("flow", "run", "flow.py")
    assert again.returncode == 0, again.stderr
    page.goto(page.url.split("#")[0] + "#/flows/example")
    page.locator("tbody tr").first.locator("a").click()
    page.wait_for_selector("[aria-label^='load cached']")
    colours = page.evaluate(
        "[...document.querySelectorAll('g.node > rect:not(.node-bar)')].map(one => getComputedStyle(one).fill)"
    )
    assert len(colours) == 2
    assert len(set(colours)) == 1, "a step with a long name, which has a title, is drawn as the others"
    assert page.locator(".fact:has(dt:text-is('Cache hits')) dd").inner_text() == "2"


def test_any_part_of_a_million_lines_is_read_in_the_place_where_it_is(site: WebSite, open_page: Visits) -> None:
    site.write_rows(
        "WITH RECURSIVE lines(at) AS (SELECT 0 UNION ALL SELECT at + 1 FROM lines WHERE at < ?)"
        " INSERT INTO logs (trial_id, run, rank, position, time_s, level, text)"
        " SELECT 2, 99, at % 2, at, 1.7e9 + at, CASE WHEN at % 1000 = 999 THEN 40 ELSE 20 END,"
        " CASE at WHEN 700123 THEN 'Traceback (most recent call last):' ELSE 'line ' || at END FROM lines",
        NUM_LINES - 1,
    )
    page = open_page("/trials/2?tab=logs")
    page.wait_for_selector("text=/1,0\\d\\d,\\d\\d\\d lines/")
    page.evaluate("() => { const box = document.querySelector('.log-lines'); box.scrollTop = box.scrollHeight / 2 }")
    page.wait_for_selector("text=/^line 50\\d{4}$/")
    shown = page.locator(".log-line").evaluate_all("rows => rows.map(row => [row.dataset.line, row.innerText])")
    own = NUM_LINES - int(re.sub(r"\D", "", page.inner_text(".logs .card-actions > .muted")))
    places = {int(at) + own - int(found[1]) for at, text in shown if (found := re.search(r"line (\d+)", text))}
    assert places == {0}, "each line is where it belongs"
    assert len(shown) < 200, "only what can be seen is drawn"
    page.click("button:has-text('Jump to the traceback')")
    page.wait_for_selector("text=Traceback (most recent call last):")
    page.fill("[aria-label='Search the log']", "line 123456")
    page.keyboard.press("Enter")
    page.wait_for_selector("text='1 line'")
    page.wait_for_selector("text='line 123456'")
    page.goto(page.url.split("?")[0] + "?tab=logs&level=error")
    page.wait_for_selector("text='1,000 lines'")


def test_zooming_into_a_curve_shows_finer_points_of_the_visible_part(site: WebSite, open_page: Visits) -> None:
    site.write_rows(
        "WITH RECURSIVE points(at) AS (SELECT 100 UNION ALL SELECT at + 1 FROM points WHERE at < ?)"
        ' INSERT INTO metrics (trial_id, "group", batches, epoch, metrics, time_s, duration_s)'
        " SELECT 3, 'long', at, at / 100.0, json_object('depth', abs(random() % 1000) / 1000.0), 1.7e9 + at, 0"
        " FROM points",
        NUM_POINTS,
    )
    page = open_page("/trials/3?metric=long%2Fdepth&x=epochs")
    chart = page.locator("figure.chart[aria-label^='long/depth over epochs']")
    chart.wait_for()
    with page.expect_response(lambda answer: "/curves" in answer.url and "first=" in answer.url) as asked:
        box = chart.locator(".u-over").bounding_box()
        page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 40)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.51, box["y"] + 60, steps=5)
        page.mouse.up()
    [curve] = asked.value.json()
    steps = {later - earlier for earlier, later in zip(curve["batches"], curve["batches"][1:], strict=False)}
    assert steps == {1}, "every row of the part, where the whole has one of fifty"
    wait_until(lambda: int(chart.get_attribute("data-points")) == len(curve["batches"]))
    page.click("button:text-is('Reset zoom')")
    wait_until(lambda: int(chart.get_attribute("data-points")) > len(curve["batches"]) // 2)


def _write_curve(site: WebSite, group: str, value: str, *, num_rows: int) -> None:
    site.write_rows(
        "WITH RECURSIVE points(at) AS (SELECT 1 UNION ALL SELECT at + 1 FROM points WHERE at < ?)"
        ' INSERT INTO metrics (trial_id, "group", batches, epoch, metrics, time_s, duration_s)'
        f" SELECT 3, ?, at, at / 100.0, json_object('wave', {value}), 1.7e9 + at, 0 FROM points",
        num_rows,
        group,
    )


def _exported(page: Any, *, kind: str = "csv") -> str:
    with page.expect_download() as download:
        page.select_option("label:has-text('Export') select", kind)
    return Path(download.value.path()).read_text()


def test_a_smoothed_value_is_the_same_at_every_zoom(site: WebSite, open_page: Visits) -> None:
    _write_curve(site, "waves", "abs(random() % 1000) / 1000.0", num_rows=200)
    page = open_page("/trials/3?metric=waves%2Fwave&smooth=0.97")
    chart = page.locator("figure.chart[aria-label^='waves/wave over batches']")
    chart.wait_for()
    at_150 = [line for line in _exported(page).splitlines() if ",150," in line]
    assert len(at_150) == 1
    with page.expect_response(lambda answer: "/curves" in answer.url and "first=" in answer.url):
        box = chart.locator(".u-over").bounding_box()
        page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 40)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 60, steps=5)
        page.mouse.up()
    wait_until(lambda: int(chart.get_attribute("data-points")) < 100)
    assert [line for line in _exported(page).splitlines() if ",150," in line] == at_150


def test_values_that_are_not_finite_are_gaps_that_are_counted(site: WebSite, open_page: Visits) -> None:
    _write_curve(site, "gaps", "CASE WHEN at BETWEEN 50 AND 149 THEN NULL ELSE at END", num_rows=200)
    _write_curve(site, "nothing", "NULL", num_rows=7)
    page = open_page("/trials/3?metric=gaps%2Fwave")
    page.wait_for_selector(".chart-note:has-text('100 values are NaN or infinite.')")
    assert "trial 3,100,\r" in _exported(page).replace("\n", "\r")
    assert _exported(page, kind="svg").count("<polyline") == 2
    page.wait_for_selector("text='No finite values: 7 values are NaN or infinite.'")


def test_a_comparison_and_settings_keep_every_digit(site: WebSite, open_page: Visits) -> None:
    for trial, seed in ((1, 1234567), (2, 1234568)):
        site.write_rows("UPDATE trials SET hparams = json_set(hparams, '$.shuffle_seed', ?) WHERE id = ?", seed, trial)
    page = open_page("/compare?trials=1,2,999")
    page.wait_for_selector(".banner:has-text('Not there, or deleted: trial 999.')")
    table = page.locator("table[aria-label='Differing hyperparameters']")
    assert re.search(r"shuffle_seed\s+1234567\s+1234568", table.inner_text())
    with page.expect_download() as download:
        page.click("button:text-is('Export CSV')")
    rows = [line.split(",") for line in Path(download.value.path()).read_text().splitlines()]
    at = rows[0].index("learning_rate")
    exact = [str(trial.hparams["learning_rate"]) for trial in site.client.experiment(1).trials if trial.id in (1, 2)]
    assert [row[at] for row in rows[1:]] == exact
    assert {"1234567", "1234568"} == {row[rows[0].index("shuffle_seed")] for row in rows[1:]}
    page = open_page("/trials/1")
    page.wait_for_selector(".facts.plain .fact:has(dt:text-is('shuffle_seed')) dd:text-is('1234567')")
    page = open_page("/experiments/1?tab=trials")
    for seed in (1234567, 1234568):
        page.wait_for_selector(f"[aria-label=Trials] span:text-is('{seed}')")
    open_page.complaints.clear()  # the browser names the answer with status 404


def test_numbers_stay_on_one_line_in_their_tiles(site: WebSite, open_page: Visits) -> None:
    site.write_rows("UPDATE trials SET best_metric = -0.000123456 WHERE id = 4")
    page = open_page("/trials/4")
    for width in (390, 700, 1000, 1360):
        page.set_viewport_size({"width": width, "height": 850})
        figure = page.locator(".figure").first
        figure.wait_for()
        assert figure.inner_text() == "-0.0001235"
        lines = "one => one.getClientRects().length + (one.offsetWidth > one.parentElement.clientWidth ? 1 : 0)"
        assert figure.evaluate(lines) == 1, width


def test_the_search_shows_who_was_stopped_where_and_why(site: WebSite, open_page: Visits) -> None:
    page = open_page("/experiments/1?tab=search")
    page.wait_for_selector(".rung li.out")
    assert page.locator(".rung").count() == 2
    assert page.locator(".rung").first.locator("li").count() == 4
    assert re.fullmatch(r"trial \d+ was stopped here: number \d of 4, and 1 of 2 goes on",
                        page.locator(".rung li.out").first.get_attribute("title"))  # fmt: skip
    # Two of four go on, and a third if it came before the better ones: the control plane knows.
    batches = [trial.batches for trial in site.client.experiment(1).trials]
    num_finished = batches.count(max(batches))
    assert num_finished >= 2
    assert page.locator(".rung").first.locator("li.on").count() == num_finished
    assert page.locator(".rung").nth(1).locator("li.end").count() == num_finished


def test_the_code_that_ran_is_read_and_compared(site: WebSite, open_page: Visits) -> None:
    model = site.shell.folder / "changed"
    model.mkdir()
    source = (site.shell.model / "model_def.py").read_text()
    (model / "model_def.py").write_text(source.replace("nn.Linear(4, 1)", "nn.Linear(4, 1, bias=False)"))
    number = _with_model(site, model)
    page = open_page(f"/experiments/{number}?tab=code&file=model_def.py&against=1")
    page.wait_for_selector(".diff.added:has-text('bias=False')")
    assert page.locator(".diff.removed").count() == 1
    page.fill("label:has-text('Compare with experiment') input", "")
    page.keyboard.press("Enter")
    page.wait_for_selector(".code-line:has-text('bias=False')")


@pytest.mark.parametrize(
    ("place", "field", "parameter"),
    [
        ("/experiments/1?tab=code", "label:has-text('Compare with experiment') input", "against=1"),
        ("/trials/1?tab=logs", "[aria-label='Search the log']", "grep=1"),
    ],
)
def test_what_is_being_typed_outlives_an_update_of_the_page(
    open_page: Visits, place: str, field: str, parameter: str
) -> None:
    page = open_page(place)
    page.fill(field, "1")
    page.evaluate("new Promise(done => { dispatchEvent(new Event('hashchange')); setTimeout(done, 200) })")
    page.press(field, "Enter")
    page.wait_for_url(f"**{place}&{parameter}")


def test_artifacts_are_shown_if_they_are_images_and_downloaded_otherwise(site: WebSite, open_page: Visits) -> None:
    folder = next(site.shell.home.glob("trials/1-*")) / "artifacts"
    folder.mkdir()
    (folder / "plots%2Fone.png").write_bytes(base64.b64decode(PIXEL))
    (folder / "page.html").write_text(f"<script>document.title = 'run'</script>{NASTY}")
    page = open_page("/trials/1?tab=artifacts")
    image = page.locator("img.artifact[alt='plots/one.png']")
    image.wait_for()
    wait_until(lambda: image.evaluate("image => image.complete && image.naturalWidth") == 1)
    assert page.locator("tbody tr:has-text('page.html')").count() == 1
    with page.expect_download() as download:
        page.click("tr:has-text('page.html') a:text-is('Download')")
    assert download.value.suggested_filename == "page.html"
    assert page.title() != "run"


def test_notes_are_written_with_a_preview(site: WebSite, open_page: Visits) -> None:
    number = site.create({**SEARCH, "name": "noted", "description": ""})
    site.client.kill_experiment(number)
    page = open_page(f"/experiments/{number}?tab=notes")
    page.click("button:text-is('Edit')")
    page.fill("textarea.notes", f"## Plan\n\n{NASTY} **soon** [docs](https://example.org)")
    page.wait_for_selector("[aria-label=Preview] strong:text-is('soon')")
    page.click("button:text-is('Save')")
    page.wait_for_selector("button:text-is('Edit')")  # until then the heading is the preview's
    page.wait_for_selector(".markdown h2, .markdown h3")
    assert "Plan" in site.client.experiment(number).description
    assert page.locator("main img").count() == 0
    assert page.get_attribute(".markdown a", "href") == "https://example.org"


def test_everything_is_reached_by_keys(open_page: Visits) -> None:
    page = open_page("/experiments")
    page.wait_for_selector(".table-body [role=row]")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.type") == "search"
    page.keyboard.type("state:completed")
    page.wait_for_selector("text='1 experiment'")
    page.locator(".table-body [role=row]").first.focus()
    page.keyboard.press("Space")
    page.wait_for_selector("text='1 selected'")
    page.keyboard.press("Enter")
    page.wait_for_selector("[role=tablist]")
    page.locator("[role=tab][aria-selected=true]").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("[role=tab][aria-selected=true]:has-text('Trials')")
    page.keyboard.press("Control+k")
    page.fill("dialog input", "trial 2")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('Trial 2')")
    page.keyboard.press("g")
    page.keyboard.press("f")
    page.wait_for_selector("h1:has-text('Flows')")


def test_workers_are_shown_as_they_joined_and_left(site: WebSite, open_page: Visits) -> None:
    for number, (worker, text) in enumerate(
        [(0, "joins as rank 0"), (1, "joins as rank 1"), (None, "starts with 2 workers"), (1, "died: signal 9")]
    ):
        site.write_rows(
            "INSERT INTO worker_changes (trial_id, run, number, time_s, generation, worker, text, num_workers)"
            " VALUES (4, 1, ?, ?, 1, ?, ?, 2)",
            number, 1.7e9 + number, worker, text,
        )  # fmt: skip
    page = open_page("/trials/4?tab=history")
    page.wait_for_selector(".worker-bar.lost[aria-label*='died: signal 9']")
    assert page.locator(".worker-bar").count() == 2
    page.click("summary:has-text('4 changes')")
    page.wait_for_selector("text=starts with 2 workers")


def _with_model(site: WebSite, model: Any) -> int:
    from trek.experiments.creation import create_experiment

    config = {**SEARCH, "name": "changed"}
    number = create_experiment(config, model, connect=lambda _: site.client).id
    site.client.kill_experiment(number)
    return number
