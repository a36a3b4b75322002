// One action on several rows: every row that it applies to is tried, and what became of each is reported.
import { count } from "../lib/format";
import { tell } from "./bits";

export interface Bulk<T> {
  noun: string;
  /** What a row is afterwards: "paused". */
  done: string;
  appliesTo: (row: T) => boolean;
  work: (row: T) => Promise<unknown>;
  /** A row in a message, with why the action may not apply to it: "7 mnist (completed)". */
  nameOf: (row: T) => string;
}

const MOST_NAMED = 5;

/** Acts, and tells the reader; false if the action failed for a row. */
export async function actOnEach<T>(rows: readonly T[], action: Bulk<T>): Promise<boolean> {
  const meant = rows.filter(action.appliesTo);
  const results = await Promise.allSettled(meant.map(action.work));
  const reasons = results.map((one) => (one.status === "rejected" ? (one.reason as Error).message : null));
  tell(outcome(rows, meant, reasons, action), { isError: reasons.some((one) => one !== null) });
  return reasons.every((one) => one === null);
}

/** What became of the rows; `reasons` are those of `meant` that failed, null for those that did not. */
export function outcome<T>(rows: readonly T[], meant: readonly T[], reasons: readonly (string | null)[], { noun, done, nameOf }: Bulk<T>): string {
  const failed = meant.flatMap((row, at) => (reasons[at] === null ? [] : [`${nameOf(row)}: ${reasons[at]}`]));
  const skipped = rows.filter((row) => !meant.includes(row)).map(nameOf);
  const left = [...failed, ...skipped];
  const more = left.length > MOST_NAMED ? ` and ${left.length - MOST_NAMED} more` : "";
  const told = left.length > 0 ? ` Not ${done}: ${left.slice(0, MOST_NAMED).join("; ")}${more}.` : "";
  return `${count(meant.length - failed.length, noun)} ${done}.${told}`;
}
