// How much each hyperparameter has to do with the metric, from what the trials of one experiment show.
import type { Json } from "./types";

export interface Importance {
  name: string;
  /** From 0, no relation, to 1. */
  strength: number;
  /** The sign of the rank correlation; 0 for categories. */
  direction: number;
  isNumeric: boolean;
}

export function importances(rows: readonly { values: Map<string, Json>; metric: number }[], names: readonly string[]): Importance[] {
  const found = names.map((name) => importance(rows, name));
  return found.sort((a, b) => b.strength - a.strength);
}

function importance(rows: readonly { values: Map<string, Json>; metric: number }[], name: string): Importance {
  const known = rows.filter((row) => row.values.get(name) !== undefined);
  const metrics = known.map((row) => row.metric);
  const numbers = known.map((row) => row.values.get(name)).filter((one): one is number => typeof one === "number");
  if (numbers.length === known.length && numbers.length > 0) {
    const correlation = spearman(numbers, metrics);
    return { name, strength: Math.abs(correlation), direction: Math.sign(correlation), isNumeric: true };
  }
  const strength = Math.sqrt(explained(known.map((row) => JSON.stringify(row.values.get(name))), metrics));
  return { name, strength, direction: 0, isNumeric: false };
}

export function spearman(xs: readonly number[], ys: readonly number[]): number {
  return pearson(ranks(xs), ranks(ys));
}

/** Ranks from 1, equal values sharing their mean rank. */
export function ranks(values: readonly number[]): number[] {
  const order = values.map((_, index) => index).sort((a, b) => values[a]! - values[b]!);
  const found = new Array<number>(values.length);
  for (let start = 0; start < order.length; ) {
    let end = start;
    while (end + 1 < order.length && values[order[end + 1]!] === values[order[start]!]) end += 1;
    for (let at = start; at <= end; at += 1) found[order[at]!] = (start + end) / 2 + 1;
    start = end + 1;
  }
  return found;
}

function pearson(xs: readonly number[], ys: readonly number[]): number {
  const n = xs.length;
  if (n < 2) return 0;
  const mx = mean(xs);
  const my = mean(ys);
  let xy = 0;
  let xx = 0;
  let yy = 0;
  for (let at = 0; at < n; at += 1) {
    const dx = xs[at]! - mx;
    const dy = ys[at]! - my;
    xy += dx * dy;
    xx += dx * dx;
    yy += dy * dy;
  }
  return xx === 0 || yy === 0 ? 0 : xy / Math.sqrt(xx * yy);
}

/** The share of the variance of `ys` that lies between the groups. */
export function explained(groups: readonly string[], ys: readonly number[]): number {
  const all = mean(ys);
  const total = ys.reduce((sum, y) => sum + (y - all) ** 2, 0);
  if (total === 0 || ys.length < 2) return 0;
  const byGroup = new Map<string, number[]>();
  groups.forEach((group, at) => byGroup.set(group, [...(byGroup.get(group) ?? []), ys[at]!]));
  let between = 0;
  for (const members of byGroup.values()) between += members.length * (mean(members) - all) ** 2;
  return between / total;
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, one) => sum + one, 0) / values.length;
}
