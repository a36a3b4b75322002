// The workers of an elastic trial as they joined and left: a bar for each time one was there, and the record in words.
import type { VNode } from "preact";
import { get } from "../lib/api";
import { clock, duration, moment } from "../lib/format";
import { useQuery } from "../lib/query";
import { useNow } from "../lib/saved";
import type { Trial, WorkerChange } from "../lib/types";
import { workerSpans } from "../lib/worker-spans";
import { Card } from "./bits";

const WIDTH = 900;
const LEFT = 76;
const ROW = 24;

/** Nothing for trials that are not elastic: they have no such record. */
export function WorkerTimeline({ trial, isLive }: { trial: Trial; isLive: boolean }): VNode | null {
  const { data } = useQuery(`workers ${trial.id}`, () => get<WorkerChange[]>(`/trials/${trial.id}/workers`), { subjects: isLive ? [`metrics:${trial.id}`, `experiment:${trial.experiment_id}`] : null });
  const now = useNow(isLive);
  if (data === null || data.length === 0) return null;
  const endS = trial.ended_s ?? Math.max(now, data.at(-1)!.time_s);
  return (
    <Card title="Workers" actions={<span class="muted small">{isLive ? `${data.at(-1)!.num_workers} at present` : ""}</span>}>
      <Bars changes={data} endS={endS} isLive={isLive} />
      <details>
        <summary>{data.length} changes</summary>
        <ol class="timeline">
          {data.map((one, at) => (
            <li key={at}>
              <time title={moment(one.time_s)}>{moment(one.time_s)}</time>
              <span>
                <strong>{one.worker === null ? "the job" : `worker ${one.worker}`}</strong> {one.text} <span class="muted">({one.num_workers} there)</span>
              </span>
            </li>
          ))}
        </ol>
      </details>
    </Card>
  );
}

function Bars({ changes, endS, isLive }: { changes: readonly WorkerChange[]; endS: number; isLive: boolean }): VNode {
  const spans = workerSpans(changes);
  const workers = [...new Set(spans.map((one) => one.worker))].sort((a, b) => a - b);
  const beginS = changes[0]!.time_s;
  const x = (timeS: number) => LEFT + ((Math.min(timeS, endS) - beginS) / Math.max(endS - beginS, 1e-3)) * (WIDTH - LEFT - 8);
  const height = workers.length * ROW + 24;
  return (
    <div class="scroll-x">
      <svg class="workers" viewBox={`0 0 ${WIDTH} ${height}`} role="group" aria-label="Workers over time">
        {workers.map((worker, row) => (
          <text key={worker} class="axis-name" x={0} y={row * ROW + 16}>worker {worker}</text>
        ))}
        {spans.map((one) => (
          <rect key={`${one.run} ${one.worker} ${one.fromS}`} class={`worker-bar${one.toS === null ? (isLive ? " present" : "") : /dismissed|leaves|ended|replaced/.test(one.left) ? "" : " lost"}`} x={x(one.fromS)} y={workers.indexOf(one.worker) * ROW + 4} width={Math.max(x(one.toS ?? endS) - x(one.fromS), 3)} height={ROW - 8} rx={4} tabIndex={0} role="img" aria-label={describe(one, endS)}>
            <title>{describe(one, endS)}</title>
          </rect>
        ))}
        <text class="axis-end" x={LEFT} y={height - 6}>{clock(beginS)}</text>
        <text class="axis-end" x={WIDTH - 8} y={height - 6} text-anchor="end">{clock(endS)}</text>
      </svg>
    </div>
  );
}

function describe(span: { worker: number; fromS: number; toS: number | null; joined: string; left: string }, endS: number): string {
  const there = duration((span.toS ?? endS) - span.fromS);
  return `worker ${span.worker} ${span.joined}, there for ${there}${span.left ? `: ${span.left}` : ""}`;
}
