// What is done to a curve between the server and the screen.
import type { Curve } from "./types";

export type XAxis = "batches" | "epochs" | "time";

/** The x values of a curve; time is in seconds since its first point, which a part of it does not have. */
export function xOf(curve: Curve, axis: XAxis, firstTime = curve.times[0] ?? 0): number[] {
  if (axis === "batches") return curve.batches;
  if (axis === "epochs") return curve.epochs;
  return curve.times.map((time) => time - firstTime);
}

/** The batches that a part of the axis shows, with the next point on either side, so that lines lead to its edges. */
export function batchesIn(curves: readonly Curve[], axis: XAxis, [from, to]: readonly [number, number]): [number, number] | null {
  let [first, last] = [Infinity, -Infinity];
  for (const curve of curves) {
    const xs = xOf(curve, axis);
    const begin = xs.findIndex((x) => x >= from);
    const end = xs.findLastIndex((x) => x <= to);
    if (begin < 0 || end < 0) continue;
    first = Math.min(first, curve.batches[Math.max(begin - 1, 0)]!);
    last = Math.max(last, curve.batches[Math.min(end + 1, xs.length - 1)]!);
  }
  return first <= last ? [first, last] : null;
}

/** Each curve, or the finer part of it that was fetched; the series stay the same ones, whatever is in the part. */
export function withFiner(curves: readonly Curve[], finer: readonly Curve[]): Curve[] {
  const parts = new Map(finer.map((one) => [one.trial_id, one]));
  return curves.map((one) => parts.get(one.trial_id) ?? one);
}

/** The first and last index of each run of values between gaps. */
export function stretches(values: readonly (number | null)[]): [number, number][] {
  const found: [number, number][] = [];
  values.forEach((value, at) => {
    if (value === null) return;
    const open = found.at(-1);
    if (open && open[1] === at - 1) open[1] = at;
    else found.push([at, at]);
  });
  return found;
}

/** Index of the value of the sorted `xs` nearest to x; -1 for none. */
export function nearest(xs: readonly number[], x: number): number {
  let low = 0;
  let high = xs.length - 1;
  if (high < 0) return -1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle]! < x) low = middle + 1;
    else high = middle;
  }
  return low > 0 && x - xs[low - 1]! < xs[low]! - x ? low - 1 : low;
}

// Okabe and Ito's colours, told apart by people with any kind of colour vision; the dark theme has lighter ones.
const LIGHT = ["#0072b2", "#d55e00", "#009e73", "#b0569b", "#8a6d00", "#3a86c8", "#a03b00", "#00684c", "#7a3a69", "#5c5c5c"];
const DARK = ["#56b4e9", "#e69f00", "#2fc99b", "#e08fc6", "#f0e442", "#7fb2ff", "#ff8a5c", "#8fe0c0", "#c9a3ff", "#bdbdbd"];

export function seriesColor(index: number, isDark: boolean): string {
  const colors = isDark ? DARK : LIGHT;
  return colors[((index % colors.length) + colors.length) % colors.length]!;
}
