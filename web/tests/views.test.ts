import { describe, expect, it } from "vitest";
// @ts-expect-error: the module only runs in browsers, and asks for this when it is loaded
globalThis.matchMedia ??= () => ({ addEventListener: () => {}, matches: false });
import { defaultsOf, isDefault } from "../src/ui/config-view";
const { decades, padded, xRange } = await import("../src/ui/chart");
import { isSafe } from "../src/ui/markdown";
import { fromPx, toPx } from "../src/ui/log-view";
import { why } from "../src/ui/search-view";
import { outcome, type Bulk } from "../src/ui/bulk";
import { sortRows, type Column } from "../src/ui/table";

describe("tables", () => {
  const columns: Column<{ x: number | null }>[] = [{ id: "x", title: "x", cell: () => null, sort: (row) => row.x }];
  it("sort, with what is missing last in both directions", () => {
    const rows = [{ x: 2 }, { x: null }, { x: 10 }];
    expect(sortRows(rows, columns, { id: "x", isDown: false }).map((row) => row.x)).toEqual([2, 10, null]);
    expect(sortRows(rows, columns, { id: "x", isDown: true }).map((row) => row.x)).toEqual([10, 2, null]);
    expect(sortRows(rows, columns, null)).toBe(rows);
  });
});

describe("axes", () => {
  it("are never empty, whatever is drawn", () => {
    for (const range of [xRange, decades, padded]) {
      for (const [low, high] of [[null, null], [1, 1], [0, 0], [-3, -3], [1e-9, 1e9], [10, 10]] as [number | null, number | null][]) {
        const [from, to] = range(low, high);
        expect(from).toBeLessThan(to);
      }
    }
    expect(decades(0.12, 3.9)).toEqual([0.1, 10]);
  });
});

describe("a million lines", () => {
  it("every line can be reached, and pixels stay within what browsers draw", () => {
    for (const total of [10, 1000, 1_000_000]) {
      expect(toPx(total, total)).toBeLessThanOrEqual(8_000_000);
      for (const line of [0, Math.floor(total / 3), total - 1]) {
        expect(Math.abs(fromPx(toPx(line, total), total) - line)).toBeLessThanOrEqual(1);
      }
    }
  });
});

describe("links in notes", () => {
  it.each(["https://a.b", "http://a", "mailto:a@b", "#/experiments/1"])("%s is one", (target) => expect(isSafe(target)).toBe(true));
  it.each(["javascript:alert(1)", " javascript:x", "data:text/html,x", "//evil", "vbscript:x"])("%s is not", (target) => expect(isSafe(target)).toBe(false));
});

describe("configs", () => {
  const schema = {
    properties: { max_restarts: { default: 5 }, resources: { $ref: "#/$defs/Resources" }, name: {} },
    $defs: { Resources: { properties: { slots_per_trial: { default: 1 } } } },
  };
  it("tell what is a default", () => {
    const defaults = defaultsOf(schema);
    expect(isDefault(defaults, "max_restarts", 5)).toBe(true);
    expect(isDefault(defaults, "max_restarts", 4)).toBe(false);
    expect(isDefault(defaults, "resources.slots_per_trial", 1)).toBe(true);
    expect(isDefault(defaults, "name", "x")).toBe(false);
  });
});

describe("rungs", () => {
  const entries = [{ trial_id: 4, metric: 0.1, went_on: true }, { trial_id: 5, metric: 0.2, went_on: false }, { trial_id: 6, metric: null, went_on: false }];
  const rung = { bracket: 0, length: 10, unit: "batches", divisor: 3, is_last: false, entries };
  it("say why a trial was stopped", () => {
    expect(why(rung, 0, "completed")).toContain("among the best");
    expect(why(rung, 1, "completed")).toContain("was stopped here: number 2 of 3");
    expect(why(rung, 1, "running")).toContain("so far");
    expect(why(rung, 2, "errored")).toContain("failed");
  });
});

describe("an action on several rows", () => {
  const pause: Bulk<number> = { noun: "run", done: "paused", appliesTo: (one) => one < 10, work: async () => {}, nameOf: (one) => `run ${one}` };
  it("says what it did and what it did not apply to", () => {
    expect(outcome([1, 2], [1, 2], [null, null], pause)).toBe("2 runs paused.");
    expect(outcome([1, 20], [1], [null], pause)).toBe("1 run paused. Not paused: run 20.");
  });
  it("names what failed with the reason, and no more than a few", () => {
    expect(outcome([1, 2], [1, 2], [null, "it has ended"], pause)).toBe("1 run paused. Not paused: run 2: it has ended.");
    const many = Array.from({ length: 9 }, (_, at) => at + 10);
    expect(outcome(many, [], [], pause)).toBe("0 runs paused. Not paused: run 10; run 11; run 12; run 13; run 14 and 4 more.");
  });
});
