// From the record of an elastic trial's workers: when each was there, and why it left.
import type { WorkerChange } from "./types";

export interface WorkerSpan {
  worker: number;
  run: number;
  fromS: number;
  /** Null while it is there. */
  toS: number | null;
  /** The words of the record. */
  joined: string;
  left: string;
}

/** The spans in the order in which they began. A run that ended, since another began, ended for its workers too. */
export function workerSpans(changes: readonly WorkerChange[]): WorkerSpan[] {
  const spans: WorkerSpan[] = [];
  const open = new Map<number, WorkerSpan>();
  let run = -1;
  let lastS = 0;
  const close = (span: WorkerSpan, toS: number, left: string) => {
    span.toS = toS;
    span.left = left;
    open.delete(span.worker);
  };
  for (const one of changes) {
    if (one.run !== run) for (const span of [...open.values()]) close(span, lastS, "the run ended");
    run = one.run;
    lastS = one.time_s;
    if (one.worker === null) continue;
    const present = open.get(one.worker);
    if (one.text.startsWith("joins")) {
      if (present) close(present, one.time_s, "was replaced");
      const span = { worker: one.worker, run, fromS: one.time_s, toS: null, joined: one.text, left: "" };
      open.set(one.worker, span);
      spans.push(span);
    } else if (present) close(present, one.time_s, one.text);
  }
  return spans;
}
