"""The web page in a real browser, against a real master with real trials, under a path prefix."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from trek.client.models import ENDED
from trek.master.web_page import FOLDER
from trek.testing import web_demo
from trek.testing.browser import why_no_browser
from trek.testing.shell import wait_until
from trek.testing.web_site import AXE, NASTY, PASSWORD, Visits, WebSite, axe_complaints, why_no_page

REPOSITORY = Path(__file__).resolve().parents[2]
PICTURES = bool(os.environ.get("WEB_PICTURES"))
MISSING = why_no_browser() or why_no_page(FOLDER)
pytestmark = [pytest.mark.skipif(bool(MISSING), reason=MISSING), pytest.mark.timeout(600)]

SLOW = {
    "name": "slow",
    "hyperparameters": {"learning_rate": 0.01, "global_batch_size": 32, "sleep_s": 0.05},
    "searcher": {"name": "single", "metric": "validation_error", "smaller_is_better": True, "max_length": 100_000},
    "training": {"validation_period": {"batches": 10}, "report_period": 5},
    "entrypoint": "model_def:LineTrial",
}


def points(page: Any) -> int:
    """How many points the first chart shows. Playwright's waiting evaluates text, which the page's policy refuses."""
    return int(page.get_attribute("figure.chart", "data-points"))


def test_the_link_logs_in_once_and_leaves_no_code_behind(site: WebSite, open_page: Visits) -> None:
    page = open_page("/experiments/1?tab=trials")
    assert page.url == f"{site.url}/#/experiments/1?tab=trials"
    assert page.evaluate("document.cookie") == "", "scripts cannot read the session"
    [cookie] = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/trek")
    page.reload()
    page.wait_for_selector("text=4 trials")


def test_names_and_notes_are_text(open_page: Visits) -> None:
    page = open_page("/experiments")
    page.wait_for_selector(f"text={NASTY}")
    page.goto(page.url.replace("/experiments", "/experiments/1?tab=notes"))
    page.wait_for_selector(".markdown strong")
    assert page.locator("main img").count() == 0
    assert page.locator(".markdown a").count() == 0, "a javascript: address is no link"


def test_a_curve_grows_and_is_paused_resumed_and_killed(site: WebSite, open_page: Visits) -> None:
    number = site.create(SLOW)
    page = open_page(f"/experiments/{number}")
    page.wait_for_selector("figure.chart[data-points]", timeout=60_000)
    before = points(page)
    wait_until(lambda: points(page) > before + 1)
    page.click("button:text-is('Pause')")
    page.wait_for_selector("h1 + .badge:has-text('paused')", timeout=60_000)
    page.click("button:text-is('Resume')")
    page.wait_for_selector("h1 + .badge:has-text('running')", timeout=60_000)
    page.click("[role=tab]:has-text('Trials')")
    page.click(".table-body a")
    page.wait_for_selector("h1:has-text('Trial')")
    page.click("button:text-is('Kill')")
    page.click("dialog button:text-is('Kill')")
    page.wait_for_selector("h1 + .badge:has-text('killed')", timeout=60_000)
    page.click("[role=tab]:has-text('History')")
    page.wait_for_selector(".timeline li.event-killed")
    assert page.locator(".timeline li.event-started").count() == 2
    page.click("[role=tab]:has-text('System')")
    page.wait_for_selector("text=Memory, MiB")
    page.wait_for_selector("text=Waiting for data, %")


def test_a_fork_is_checked_while_it_is_edited(site: WebSite, open_page: Visits) -> None:
    page = open_page("/experiments/1")
    page.click("button:text-is('Fork')")
    page.wait_for_selector("[data-testid=fork-check]:has-text('valid')")
    config = page.input_value("textarea.config")
    page.fill("textarea.config", re.sub(r"max_trials: \d+", "max_trials: many", config))
    page.wait_for_selector("[data-testid=fork-check].problem:has-text('max_trials')")
    assert page.is_disabled("button:text-is('Create the fork')")
    page.fill("textarea.config", re.sub(r"max_trials: \d+", "max_trials: 2", config).replace(f'"{NASTY}"', "forked"))
    page.wait_for_selector("[data-testid=fork-check].good")
    page.click("button:text-is('Create the fork')")
    page.wait_for_selector("h1:has-text('forked')")
    page.wait_for_selector("text=Forked from")
    number = int(re.search(r"experiments/(\d+)", page.url)[1])  # type: ignore[index]
    assert site.client.experiment(number).parent == 1
    site.client.kill_experiment(number)
    wait_until(lambda: site.client.experiment(number).state in ENDED)


def test_trials_are_compared_and_exported(open_page: Visits) -> None:
    page = open_page("/experiments/1?tab=trials")
    for at in (0, 1):
        page.locator(".table-body [role=row]").nth(at).locator("input").check()
    page.click("button:has-text('Compare 2')")
    page.wait_for_selector(".legend li:nth-child(2)")
    assert "learning_rate" in page.inner_text("table[aria-label='Differing hyperparameters']")
    for kind, beginning in (("csv", "series,batches"), ("svg", "<svg"), ("png", "\x89PNG")):
        with page.expect_download() as download:
            page.select_option("label:has-text('Export') select", kind)
        assert Path(download.value.path()).read_bytes().decode("latin-1").startswith(beginning)


def test_brushing_an_axis_keeps_the_trials_in_its_range(open_page: Visits) -> None:
    page = open_page("/experiments/1?tab=hparams")
    page.wait_for_selector("[data-testid=brushed]:has-text('4 of 4 trials')")
    box = page.locator("[data-axis=validation_error]").bounding_box()
    middle = box["x"] + box["width"] / 2
    page.mouse.move(middle, box["y"] + box["height"] - 1)
    page.mouse.down()
    page.mouse.move(middle, box["y"] + box["height"] - 12, steps=4)
    page.mouse.up()
    wait_until(lambda: not page.inner_text("[data-testid=brushed]").startswith("4 of 4"))
    page.click("button:text-is('Clear brushes')")
    page.wait_for_selector("[data-testid=brushed]:has-text('4 of 4 trials')")


def test_a_viewer_logs_in_and_sees_no_button_that_would_be_refused(site: WebSite, browser: Any) -> None:
    context = browser.new_context()
    page = context.new_page()
    refused: list[str] = []
    page.goto(f"{site.url}/#/experiments/1")
    page.fill("input[name=name]", "vic")
    page.fill("input[name=password]", "wrong password")
    page.click("button:has-text('Log in')")
    page.wait_for_selector("[role=alert]:has-text('Invalid user name or password')")
    page.fill("input[name=password]", PASSWORD)
    page.click("button:has-text('Log in')")
    page.wait_for_selector(f"h1:has-text('{NASTY}')")
    page.on("response", lambda answer: refused.append(answer.url) if answer.status in (401, 403) else None)
    for name, place in PAGES.items():
        page.evaluate("place => { location.hash = place }", place)
        _wait_for_content(page)
        offered = set(page.locator("main button").all_inner_texts()) & REFUSED_TO_VIEWERS
        assert not offered, f"{name}: {offered}"
    assert refused == []
    page.click("button:has-text('Log out')")
    page.wait_for_selector("text=Log in to Trek")
    context.close()


def test_the_page_runs_nothing_that_was_put_into_it_and_is_not_framed(site: WebSite, browser: Any) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(site.link("/experiments"))
    page.wait_for_selector("nav.side")
    put = "() => { try { document.body.innerHTML = '<p>x</p>'; return 'put' } catch (error) { return error.name } }"
    assert page.evaluate(put) == "TypeError", "text never becomes elements (trusted types)"
    framing = context.new_page()
    framing.set_content(f"<iframe src='{site.url}/'></iframe>")
    wait_until(lambda: framing.frames[-1].url.startswith("chrome-error:"))
    context.close()


def test_logs_are_text_whatever_is_in_them(site: WebSite, open_page: Visits) -> None:
    line = f"\x1b[31mred\x1b[0m \x1b]0;title\x07{NASTY}\x1b[2J end"
    site.write_rows(
        "INSERT INTO logs (trial_id, run, rank, position, time_s, level, text) VALUES (1, 98, 0, 1, 1.7e9, 20, ?)", line
    )
    page = open_page("/trials/1?tab=logs&grep=onerror")
    page.wait_for_selector(".ansi-red:text-is('red')")
    assert f"red {NASTY} end" in page.locator(".log-line").inner_text()
    assert page.locator("main img").count() == 0


def test_tabs_share_one_connection_and_both_are_live(site: WebSite, open_page: Visits) -> None:
    first, second = open_page("/experiments"), open_page("/experiments")
    asked = [page.evaluate("performance.getEntriesByType('resource').map(one => one.name)") for page in (first, second)]
    assert not any("changes/events" in name for names in asked for name in names), "the shared worker listens for both"
    site.client.change_experiment(1, labels=["seen-at-once"])
    for page in (first, second):
        page.wait_for_selector(".tag:has-text('seen-at-once')")


def test_the_page_is_live_again_after_logging_out_and_in(site: WebSite, browser: Any) -> None:
    context = browser.new_context()
    context.set_default_timeout(60_000)
    page = context.new_page()
    failures: list[str] = []
    page.on("pageerror", lambda error: failures.append(str(error)))
    page.goto(site.link("/experiments"))
    page.click("button:has-text('Log out')")
    page.fill("input[name=name]", "ann")
    page.fill("input[name=password]", PASSWORD)
    page.click("button:has-text('Log in')")
    page.wait_for_selector("nav.side")
    page.wait_for_selector(".table-body [role=row]")
    site.client.change_experiment(1, labels=["seen-after-login"])
    page.wait_for_selector(".tag:has-text('seen-after-login')")
    assert failures == []
    context.close()


def _ended(site: WebSite, name: str) -> int:
    number = site.create({**SLOW, "name": name})
    site.client.kill_experiment(number)
    wait_until(lambda: site.client.experiment(number).state in ENDED)
    return number


def test_an_action_is_of_the_selected_rows_that_are_shown_and_names_them(site: WebSite, open_page: Visits) -> None:
    hidden, shown = _ended(site, "precious"), _ended(site, "rubbish")
    page = open_page("/experiments")
    for number in (hidden, shown):
        page.check(f"[data-key='{number}'] input")
    page.fill("input[type=search]", "rubbish")
    page.wait_for_selector(".selection strong:text-is('1 selected, 1 more hidden by the search')")
    page.click(".selection button:text-is('Delete')")
    assert page.locator("dialog li").all_inner_texts() == [f"{shown} rubbish"]
    page.click("dialog button:text-is('Delete')")
    page.wait_for_selector(".messages:has-text('1 experiment deleted.')")
    page.wait_for_selector("text=No experiment matches")
    assert site.client.experiment(hidden).name == "precious"


def test_an_action_on_several_rows_does_what_it_can_and_says_what_it_did_not(site: WebSite, open_page: Visits) -> None:
    ended, running = _ended(site, "over"), site.create({**SLOW, "name": "under way"})
    wait_until(lambda: site.client.experiment(running).state == "running")
    page = open_page("/experiments")
    for number in (ended, running):
        page.check(f"[data-key='{number}'] input")
    page.wait_for_selector(f"[data-key='{running}'] .badge:has-text('running')")
    page.click(".selection button:text-is('Pause')")
    page.wait_for_selector(f".messages:has-text('1 experiment paused. Not paused: {ended} over (killed).')")
    page.wait_for_selector(f"[data-key='{running}'] .badge:has-text('paused')")
    site.client.kill_experiment(running)


def test_an_experiment_that_was_deleted_elsewhere_is_not_shown_any_longer(site: WebSite, open_page: Visits) -> None:
    number = _ended(site, "short-lived")
    page = open_page(f"/experiments/{number}")
    page.wait_for_selector("h1:has-text('short-lived')")
    site.client.delete_experiment(number)
    page.wait_for_selector("[role=alert]:has-text('This does not exist, or was deleted.')")
    assert page.locator("h1:has-text('short-lived')").count() == 0
    page.goto(page.url.split("#")[0] + "#/experiments")
    page.wait_for_selector("h1:text-is('Experiments')")
    assert open_page.complaints.pop().endswith("404 (Not Found)")


def test_what_could_not_be_fetched_again_says_so(open_page: Visits) -> None:
    page = open_page("/cluster")
    page.wait_for_selector("h1:has-text('Cluster')")
    page.route("**/api/v1/cluster", lambda route: route.fulfill(status=500, body='{"message": "it broke"}'))
    page.wait_for_selector("main .banner:has-text('What is shown may be out of date. It broke')")
    page.unroute("**/api/v1/cluster")
    page.wait_for_selector("main .banner", state="detached")
    open_page.complaints.clear()  # the browser names the answers with status 500


def test_the_palette_and_the_keys_lead_everywhere(open_page: Visits) -> None:
    page = open_page("/experiments")
    page.keyboard.press("Control+k")
    page.fill("dialog input", "cluster")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('Cluster')")
    page.keyboard.press("g")
    page.keyboard.press("m")
    page.wait_for_selector("h1:has-text('Models')")


PAGES = {
    "experiments": "/experiments",
    "experiment": "/experiments/1?scale=log",
    "trials": "/experiments/1?tab=trials",
    "hyperparameters": "/experiments/1?tab=hparams",
    "search": "/experiments/1?tab=search",
    "logs": "/experiments/1?tab=logs",
    "config": "/experiments/1?tab=config",
    "code": "/experiments/1?tab=code",
    "notes": "/experiments/1?tab=notes",
    "trial": "/trials/1",
    "checkpoints": "/trials/1?tab=checkpoints",
    "system": "/trials/1?tab=system",
    "history": "/trials/1?tab=history",
    "compare": "/compare?trials=1,2,3",
    "flows": "/flows",
    "models": "/models",
    "cluster": "/cluster",
    "users": "/users",
}


REFUSED_TO_VIEWERS = {
    "Pause", "Resume", "Kill", "Fork", "Archive", "Unarchive", "Delete", "Code", "Edit", "Register", "Add a user",
    "New model", "Yes: deactivate", "No: activate",
}  # fmt: skip


def _wait_for_content(page: Any) -> None:
    page.wait_for_selector("main h1, main .empty, main .card")
    wait_until(lambda: page.locator("main .loading").count() == 0)


@pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not installed (make web)")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_passes_axe(site: WebSite, open_page: Visits, theme: str) -> None:
    """Also writes the pictures of the documentation for `make pictures`."""
    places = {**PAGES, **web_demo.places(site)} if PICTURES else PAGES
    page = open_page("/experiments")
    page.evaluate("theme => localStorage.setItem('trek.theme', JSON.stringify(theme))", theme)
    page.reload()
    found = {}
    for name, place in places.items():
        page.evaluate("place => { location.hash = place }", place)
        _wait_for_content(page)
        if PICTURES:
            web_demo.save_picture(page, REPOSITORY / "docs" / "images" / f"web-{name}-{theme}.png")
        if complaints := axe_complaints(page):
            found[name] = complaints
    assert found == {}


def test_a_phone_shows_the_page_without_scrolling_sideways(open_page: Visits) -> None:
    page = open_page("/experiments/1")
    page.set_viewport_size({"width": 390, "height": 800})
    page.wait_for_selector("figure.chart")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.click("button[aria-label=Menu]")
    page.click("nav.side a:has-text('Cluster')")
    page.wait_for_selector("h1:has-text('Cluster')")
