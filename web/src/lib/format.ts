// Numbers, times and sizes as people read them; times are in the reader's zone.
import type { Json } from "./types";

// Made once: to make one takes far longer than to use it, and tables use thousands.
const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const MOMENT = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const DAY = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });
const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "medium", hour12: false });

export function number(value: number | null | undefined, digits = 4): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(2).replace("e+", "e");
  if (Number.isInteger(value) || size >= 1000) return WHOLE.format(value);
  return String(Number(value.toPrecision(digits)));
}

export function percent(value: number): string {
  return `${Math.floor(Math.min(Math.max(value, 0), 1) * 100)} %`;
}

export function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${at === 0 ? value : value.toFixed(value < 10 ? 1 : 0)} ${units[at]}`;
}

export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || seconds < 0) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return both(Math.floor(whole / 60), "min", whole % 60, "s");
  if (whole < 86_400) return both(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "min");
  return both(Math.floor(whole / 86_400), "d", Math.floor((whole % 86_400) / 3600), "h");
}

function both(large: number, unit: string, small: number, smaller: string): string {
  return small === 0 ? `${large} ${unit}` : `${large} ${unit} ${small} ${smaller}`;
}

export function span(started: number | null, ended: number | null, nowS: number): number | null {
  return started === null ? null : (ended ?? nowS) - started;
}

export function ago(seconds: number, nowS: number): string {
  const past = nowS - seconds;
  if (past < 60) return "just now";
  if (past < 3600) return `${Math.floor(past / 60)} min ago`;
  if (past < 86_400) return `${Math.floor(past / 3600)} h ago`;
  if (past < 30 * 86_400) return `${Math.floor(past / 86_400)} d ago`;
  return DAY.format(seconds * 1000);
}

export function moment(seconds: number): string {
  return MOMENT.format(seconds * 1000);
}

export function clock(seconds: number): string {
  return CLOCK.format(seconds * 1000);
}

/** A setting, from which it can be set again: numbers in full. */
export function value(json: Json | undefined): string {
  if (json === undefined) return "–";
  return typeof json === "string" ? json : JSON.stringify(json);
}

/** A setting where there is little space: numbers are rounded. */
export function short(json: Json | undefined): string {
  return typeof json === "number" ? number(json) : value(json);
}

/** Settings side by side: numbers in full where they would look the same otherwise. */
export function apart(all: readonly (Json | undefined)[]): string[] {
  const rounded = all.map(short);
  const areTold = new Set(rounded).size === new Set(all.map((one) => JSON.stringify(one))).size;
  return areTold ? rounded : all.map(value);
}

const ONE: Record<string, string> = { batches: "batch", epochs: "epoch", records: "record" };

/** A length of training: "1 epoch", "20,000 records". */
export function lengthText(amount: number, unit: string): string {
  return `${number(amount)} ${amount === 1 ? (ONE[unit] ?? unit) : unit}`;
}

export function count(amount: number, noun: string): string {
  return `${WHOLE.format(amount)} ${noun}${amount === 1 ? "" : "s"}`;
}
