import { describe, expect, it } from "vitest";
import { parts, visible } from "../src/lib/ansi";
import { exact, toCsv } from "../src/lib/csv";
import { diffLines } from "../src/lib/diff";
import { fieldOf, matches, parseSearch } from "../src/lib/filter";
import { differing, flatten } from "../src/lib/flatten";
import { ago, apart, bytes, duration, number, short, value } from "../src/lib/format";
import { layoutGraph } from "../src/lib/layout";
import { href, parsePlace } from "../src/lib/router";
import { batchesIn, nearest, stretches, withFiner, xOf } from "../src/lib/series";
import { workerSpans } from "../src/lib/worker-spans";
import { explained, importances, ranks, spearman } from "../src/lib/stats";
import type { Experiment } from "../src/lib/types";
import { toYaml } from "../src/lib/yaml";
import { escape, toSvg } from "../src/ui/svg-export";

const EXPERIMENT: Experiment = {
  id: 7, name: "mnist <b>", description: "", state: "running", progress: 0.5, metric: "loss", smaller_is_better: true,
  searcher: "random", hyperparameters: { lr: { type: "log", minval: -4 } }, best_metric: 0.2, best_trial: 3,
  best_hparams: { lr: 0.01, model: { depth: 4, act: "relu" } }, num_trials: 2, labels: ["demo", "vision"], owner: "ann",
  is_archived: false, parent: null, error: "", failure: "", created_s: 1, started_s: 2, ended_s: 12,
};

describe("search", () => {
  const finds = (text: string) => matches(EXPERIMENT, parseSearch(text));
  it.each([
    "mnist", "MNIST vision", "state:running", "lr<0.02", "lr>=0.01", "depth=4", "act:rel", "best<0.3", "loss<0.3",
    "owner:ann demo", "label:demo", "id=7", "missing!=3", "progress>40", "duration=10", 'name:"mnist <b>"',
  ])("finds %s", (text) => expect(finds(text)).toBe(true));
  it.each(["cifar", "state:paused", "lr>0.02", "depth=5", "best>0.3", "owner!=ann", "missing:3", "act<3", "lr<abc"])(
    "does not find %s", (text) => expect(finds(text)).toBe(false));
  it("reads hyperparameters of the best trial before those of the config", () => {
    expect(fieldOf(EXPERIMENT, "lr")).toBe(0.01);
  });
});

describe("curves", () => {
  it("are cut where values are not finite", () => {
    expect(stretches([])).toEqual([]);
    expect(stretches([null, null])).toEqual([]);
    expect(stretches([1, 2, 0])).toEqual([[0, 2]]);
    expect(stretches([null, 1, 2, null, 3, null])).toEqual([[1, 2], [4, 4]]);
  });
  it("finds the nearest point", () => {
    expect(nearest([], 1)).toBe(-1);
    for (let x = -5; x < 40; x += 0.37) {
      const xs = [0, 3, 4, 10, 25];
      const at = nearest(xs, x);
      expect(Math.abs(xs[at]! - x)).toBe(Math.min(...xs.map((one) => Math.abs(one - x))));
    }
  });
  it("time begins with the first point", () => {
    const curve = { trial_id: 1, batches: [1, 2], epochs: [0.1, 0.2], times: [100, 107], values: [1, 2], num_undefined: 0 };
    expect(xOf(curve, "time")).toEqual([0, 7]);
  });
});

describe("logs", () => {
  it("keeps colours and drops everything else", () => {
    expect(parts("\x1b[31mred\x1b[0m plain")).toEqual([{ text: "red", style: "ansi-red" }, { text: " plain", style: "" }]);
    expect(parts("\x1b]0;title\x07a\x1b[2Jb\x1b[1;32mc")).toEqual([
      { text: "a", style: "" }, { text: "b", style: "" }, { text: "c", style: "ansi-bold ansi-green" }]);
  });
  it("shows the last version of a line that was overwritten, and no invisible characters", () => {
    expect(visible("10%\r50%\r")).toBe("50%");
    expect(visible("a\u202eb\x00c")).toBe("a\ufffdb\ufffdc");
  });
  it("leaves markup as text", () => expect(parts("<img onerror=x>")[0]!.text).toBe("<img onerror=x>"));
});

describe("files", () => {
  it("defuses formulas and quotes", () => {
    expect(toCsv([["a", '=HYPERLINK("x")'], ["b,c", 1.5], [null, 'say "hi"']])).toBe(
      'a,"\'=HYPERLINK(""x"")"\r\n"b,c",1.5\r\n,"say ""hi"""\r\n');
  });
  it("keep every digit of a number, and quote what is no number or text", () => {
    const values = [1234567, 0.000123456789, true, [1, 2], { a: 1 }, null, undefined, "x"];
    expect(values.map(exact)).toEqual([1234567, 0.000123456789, "true", "[1,2]", '{"a":1}', null, null, "x"]);
  });
  it("leave a gap in SVG where a value is not finite, and draw a point alone", () => {
    const series = [{ id: "1", label: "x", color: "#123456", xs: [0, 1, 2, 3, 4, 5], ys: [1, 2, null, 4, null, 2] }];
    for (const isLog of [false, true]) {
      expect(toSvg(series, { title: "t", xLabel: "batches", isLog }).match(/<polyline/g)).toHaveLength(3);
    }
  });
  it("escapes names in SVG", () => {
    const series = [{ id: "1", label: '<img onerror="x">', color: "#123456", xs: [0, 1], ys: [1, 2] }];
    const svg = toSvg(series, { title: "<script>", xLabel: "batches", isLog: false });
    expect(svg).not.toContain("<img");
    expect(svg).not.toContain("<script");
    expect(escape("<&>\"")).toBe("&lt;&amp;&gt;&quot;");
  });
  it("tells what changed", () => {
    const kinds = diffLines("a\nb\nc\nd", "a\nc\nx\nd").map((line) => `${line.kind[0]}${line.text}`);
    expect(kinds).toEqual(["sa", "rb", "sc", "ax", "sd"]);
  });
  it("a diff applied to the old text gives the new one", () => {
    let seed = 1;
    const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
    for (let round = 0; round < 200; round += 1) {
      const text = () => Array.from({ length: Math.floor(random() * 12) }, () => "abc"[Math.floor(random() * 3)]).join("\n");
      const [before, after] = [text(), text()];
      const lines = diffLines(before, after);
      expect(lines.filter((one) => one.kind !== "added").map((one) => one.text).join("\n")).toBe(before);
      expect(lines.filter((one) => one.kind !== "removed").map((one) => one.text).join("\n")).toBe(after);
    }
  });
});

describe("statistics", () => {
  it("ranks share ties", () => expect(ranks([10, 20, 20, 5])).toEqual([2, 3.5, 3.5, 1]));
  it("a monotone relation is perfect whatever its shape", () => {
    const xs = [1e-4, 1e-3, 1e-2, 0.1];
    expect(spearman(xs, xs.map((x) => -Math.log(x)))).toBeCloseTo(-1);
    expect(spearman([1, 1], [1, 2])).toBe(0);
  });
  it("categories explain what lies between them", () => {
    expect(explained(["a", "a", "b", "b"], [1, 1, 5, 5])).toBe(1);
    expect(explained(["a", "b", "a", "b"], [1, 1, 5, 5])).toBe(0);
  });
  it("puts the strongest first", () => {
    const rows = [1, 2, 3, 4].map((x) => ({ values: new Map<string, number | string>([["lr", x], ["seed", x % 2]]), metric: x * x }));
    expect(importances(rows, ["seed", "lr"]).map((one) => one.name)).toEqual(["lr", "seed"]);
  });
});

describe("small things", () => {
  it("values side by side can be told apart", () => {
    expect(apart([0.1, 0.25])).toEqual(["0.1", "0.25"]);
    expect(apart([1234567, 1234568])).toEqual(["1234567", "1234568"]);
    expect(apart([10000.4, 10000.45, "x", undefined])).toEqual(["10000.4", "10000.45", "x", "–"]);
    expect(apart([1234567, 1234567, undefined])).toEqual(["1.23e6", "1.23e6", "–"]);
  });
  it("settings are in full, and rounded where there is little space", () => {
    const all = [1234567, 0.00012345678899999999, 10000.4, "x", null, undefined, [1, 0.5]];
    expect(all.map((one) => value(one))).toEqual(["1234567", "0.000123456789", "10000.4", "x", "null", "–", "[1,0.5]"]);
    expect(all.map((one) => short(one))).toEqual(["1.23e6", "0.0001235", "10,000", "x", "null", "–", "[1,0.5]"]);
  });
  it("numbers", () => {
    expect([0, 0.000012, 1234, 0.123456, 1e9, null].map((one) => number(one))).toEqual(["0", "1.20e-5", "1,234", "0.1235", "1.00e9", "–"]);
    expect(bytes(1536)).toBe("1.5 KiB");
    expect([0.2, 5, 75, 3700, 90_000].map(duration)).toEqual(["200 ms", "5.0 s", "1 min 15 s", "1 h 1 min", "1 d 1 h"]);
    expect(ago(0, 7200)).toBe("2 h ago");
  });
  it("places are read as they are written", () => {
    const target = href(["flows", "a/b c", "r#1"], { step: "x&y", none: null });
    const place = parsePlace(target);
    expect(place.parts).toEqual(["flows", "a/b c", "r#1"]);
    expect(place.query.get("step")).toBe("x&y");
    expect(parsePlace("#/%E0%A4%A").parts).toEqual(["%E0%A4%A"]);
  });
  it("settings that differ", () => {
    const all = [flatten({ a: 1, b: { c: 2 } }), flatten({ a: 1, b: { c: 3 }, d: [1] })];
    expect(differing(all)).toEqual(["b.c", "d"]);
  });
  it("a step is drawn after those it waits for", () => {
    const placed = layoutGraph([{ name: "c", after: ["a", "b"] }, { name: "a", after: [] }, { name: "b", after: ["a"] }, { name: "x", after: ["x", "gone"] }]);
    expect(Object.fromEntries(placed.map((one) => [one.name, one.column]))).toEqual({ c: 2, a: 0, b: 1, x: 1 });
  });
  it("YAML quotes what would be read as something else", () => {
    expect(toYaml({ a: "true", b: "1e-3", c: "x: y", d: [1, { e: null }], f: {}, g: "model:Trial" })).toBe(
      'a: "true"\nb: "1e-3"\nc: "x: y"\nd:\n  - 1\n  - e: null\nf: {}\ng: model:Trial');
  });
});

describe("the visible part of curves", () => {
  const curve = (trial_id: number, batches: number[]) => ({ trial_id, batches, values: batches.map(() => 1), epochs: batches.map((one) => one / 10), times: batches.map((one) => 500 + one), num_undefined: 0 });
  it("is known by batches, with a neighbour on either side, on any axis", () => {
    const curves = [curve(1, [0, 10, 20, 30, 40]), curve(2, [5, 25, 45])];
    expect(batchesIn(curves, "batches", [12, 28])).toEqual([5, 45]);
    expect(batchesIn([curves[0]!], "batches", [12, 28])).toEqual([10, 30]);
    expect(batchesIn([curves[0]!], "epochs", [1.9, 2.1])).toEqual([10, 30]);
    expect(batchesIn([curves[0]!], "time", [19, 21])).toEqual([10, 30]);
    expect(batchesIn(curves, "batches", [60, 70])).toBeNull();
  });
  it("replaces the whole curve, and the series stay the same", () => {
    const [whole, other, part] = [curve(1, [0, 10, 20]), curve(2, [0, 10]), curve(1, [10, 11, 12])];
    expect(withFiner([whole, other], [part])).toEqual([part, other]);
    expect(xOf(part, "time", whole.times[0])).toEqual([10, 11, 12]);
  });
});

describe("workers that come and go", () => {
  const change = (time_s: number, worker: number | null, text: string, run = 1) => ({ run, time_s, generation: 1, worker, text, num_workers: 1 });
  it("are there from joining to leaving, and no longer than their run", () => {
    const spans = workerSpans([
      change(1, 0, "joins as rank 0"), change(1, 1, "joins as rank 1"), change(1, null, "starts with 2 workers"),
      change(5, 1, "died: signal 9"), change(6, null, "goes on with 1 worker"), change(8, 1, "joins as rank 1"),
      change(20, 0, "joins as rank 0", 2),
    ]);
    expect(spans.map((one) => [one.worker, one.run, one.fromS, one.toS, one.left])).toEqual([
      [0, 1, 1, 8, "the run ended"], [1, 1, 1, 5, "died: signal 9"], [1, 1, 8, 8, "the run ended"], [0, 2, 20, null, ""],
    ]);
  });
  it("are none for a trial without a record", () => expect(workerSpans([])).toEqual([]));
});
