// Hyperparameters against the metric: parallel coordinates with brushing, scatter plots with importance, a map of pairs.
import type { VNode } from "preact";
import { useMemo, useState } from "preact/hooks";
import { number, short } from "../lib/format";
import { flatten } from "../lib/flatten";
import { useParam, go, href } from "../lib/router";
import { importances } from "../lib/stats";
import type { ExperimentDetails, Json, Trial } from "../lib/types";
import { Card, Choice, Empty } from "./bits";

interface Row {
  trial: Trial;
  values: Map<string, Json>;
  metric: number;
}

interface Axis {
  name: string;
  /** From 0 to 1, or null where there is no value. */
  place: (row: Row) => number | null;
  low: string;
  high: string;
}

export function HparamViews({ details }: { details: ExperimentDetails }): VNode {
  const rows = useMemo(() => rowsOf(details), [details]);
  const names = useMemo(() => varying(rows), [rows]);
  if (rows.length < 2 || names.length === 0) {
    return (
      <Card title="Hyperparameters">
        <Empty title="Nothing to compare yet">
          <p>These views need at least two trials with a validation and different hyperparameters.</p>
        </Empty>
      </Card>
    );
  }
  return (
    <>
      <Parallel rows={rows} names={names} details={details} />
      <div class="columns">
        <ImportanceView rows={rows} names={names} details={details} />
        <HeatMap rows={rows} names={names} details={details} />
      </div>
    </>
  );
}

function rowsOf(details: ExperimentDetails): Row[] {
  return details.trials
    .filter((trial) => trial.best_metric !== null)
    .map((trial) => ({ trial, values: flatten(trial.hparams), metric: trial.best_metric! }));
}

export function varying(rows: readonly { values: Map<string, Json> }[]): string[] {
  const names = new Set(rows.flatMap((row) => [...row.values.keys()]));
  return [...names].filter((name) => new Set(rows.map((row) => JSON.stringify(row.values.get(name) ?? null))).size > 1);
}

/** An axis over the values that occur: numbers by size, spread over decades logarithmically; anything else in order. */
export function axisOf(name: string, rows: readonly Row[], read: (row: Row) => Json | undefined): Axis {
  const all = rows.map(read).filter((one): one is Json => one !== undefined);
  if (all.every((one) => typeof one === "number")) {
    const numbers = all as number[];
    const low = Math.min(...numbers);
    const high = Math.max(...numbers);
    const isLog = low > 0 && high / low >= 50;
    const scale = (x: number) => (isLog ? Math.log(x) : x);
    const size = scale(high) - scale(low) || 1;
    const place = (row: Row) => {
      const found = read(row);
      return typeof found === "number" ? (scale(found) - scale(low)) / size : null;
    };
    return { name, place, low: number(low), high: number(high) };
  }
  const known = [...new Set(all.map((one) => JSON.stringify(one)))].sort();
  const place = (row: Row) => {
    const at = known.indexOf(JSON.stringify(read(row)));
    return at < 0 ? null : known.length === 1 ? 0.5 : at / (known.length - 1);
  };
  return { name, place, low: short(JSON.parse(known[0] ?? '""') as Json), high: short(JSON.parse(known.at(-1) ?? '""') as Json) };
}

const WIDTH = 960;
const HEIGHT = 300;
const TOP = 46;
const BOTTOM = 26;

type Brush = { axis: string; from: number; to: number };

function Parallel({ rows, names, details }: { rows: readonly Row[]; names: readonly string[]; details: ExperimentDetails }): VNode {
  const axes = useMemo(
    () => [...names.map((name) => axisOf(name, rows, (row) => row.values.get(name))), axisOf(details.metric, rows, (row) => row.metric)],
    [rows, names, details.metric],
  );
  const [brushes, setBrushes] = useState<Brush[]>([]);
  const [drag, setDrag] = useState<{ axis: string; start: number; now: number } | null>(null);
  const [hovered, setHovered] = useState<number | null>(null);
  const margin = 70;
  const xOf = (at: number) => margin + (at / Math.max(1, axes.length - 1)) * (WIDTH - 2 * margin);
  const yOf = (place: number) => HEIGHT - BOTTOM - place * (HEIGHT - TOP - BOTTOM);
  const active = drag ? [...brushes.filter((one) => one.axis !== drag.axis), brushOf(drag)] : brushes;
  const isIn = (row: Row) =>
    active.every((brush) => {
      const place = axes.find((axis) => axis.name === brush.axis)?.place(row) ?? null;
      return place !== null && place >= brush.from - 1e-9 && place <= brush.to + 1e-9;
    });
  const chosen = rows.filter(isIn);
  const quality = axes.at(-1)!;
  const placeAt = (event: PointerEvent) => {
    const box = (event.currentTarget as Element).closest("svg")!.getBoundingClientRect();
    const y = ((event.clientY - box.top) / box.height) * HEIGHT;
    return Math.min(1, Math.max(0, (HEIGHT - BOTTOM - y) / (HEIGHT - TOP - BOTTOM)));
  };
  const end = () => {
    if (!drag) return;
    const brush = brushOf(drag);
    setBrushes([...brushes.filter((one) => one.axis !== drag.axis), ...(brush.to - brush.from > 0.01 ? [brush] : [])]);
    setDrag(null);
  };
  const hoveredRow = rows.find((row) => row.trial.id === hovered);
  return (
    <Card
      title="Parallel coordinates"
      actions={
        <>
          <span class="muted small" data-testid="brushed">
            {chosen.length} of {rows.length} trials{hoveredRow ? ` · trial ${hoveredRow.trial.id}: ${number(hoveredRow.metric)}` : ""}
          </span>
          {brushes.length > 0 && (
            <button class="button small" onClick={() => setBrushes([])}>
              Clear brushes
            </button>
          )}
          {chosen.length > 0 && chosen.length <= 50 && brushes.length > 0 && (
            <button class="button small" onClick={() => go(href(["compare"], { trials: chosen.map((row) => row.trial.id).join(",") }))}>
              Compare these
            </button>
          )}
        </>
      }
    >
      <p class="muted small">Drag along an axis to keep the trials in that range. Lines are coloured from the worst (light) to the best (dark).</p>
      <div class="scroll-x">
      <svg class="parallel" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`Parallel coordinates of ${rows.length} trials`} onPointerUp={end} onPointerLeave={end}>
        {rows.map((row) => {
          const points = axes.map((axis, at) => [xOf(at), axis.place(row)] as const).filter(([, place]) => place !== null);
          const best = details.smaller_is_better ? 1 - (quality.place(row) ?? 0) : (quality.place(row) ?? 0);
          return (
            <polyline
              key={row.trial.id}
              class={`parallel-line${isIn(row) ? "" : " out"}${hovered === row.trial.id ? " hovered" : ""}`}
              points={points.map(([x, place]) => `${x},${yOf(place!)}`).join(" ")}
              style={{ strokeOpacity: isIn(row) ? 0.25 + 0.75 * best : 0.06 }}
              onPointerEnter={() => setHovered(row.trial.id)}
              onPointerLeave={() => setHovered(null)}
              onClick={() => go(href(["trials", row.trial.id]))}
            />
          );
        })}
        {axes.map((axis, at) => {
          const brush = active.find((one) => one.axis === axis.name);
          return (
            <g key={axis.name} transform={`translate(${xOf(at)},0)`}>
              <line class="parallel-axis" y1={TOP} y2={HEIGHT - BOTTOM} />
              <text class="axis-name" y={18} text-anchor="middle">
                {shorten(axis.name)}
              </text>
              <text class="axis-end" y={TOP - 8} text-anchor="middle">
                {shorten(axis.high, 14)}
              </text>
              <text class="axis-end" y={HEIGHT - BOTTOM + 16} text-anchor="middle">
                {shorten(axis.low, 14)}
              </text>
              {brush && <rect class="brush" x={-9} width={18} y={yOf(brush.to)} height={Math.max(1, yOf(brush.from) - yOf(brush.to))} />}
              <rect
                class="brush-area"
                data-axis={axis.name}
                x={-16}
                width={32}
                y={TOP}
                height={HEIGHT - TOP - BOTTOM}
                onPointerDown={(event) => {
                  const place = placeAt(event);
                  setDrag({ axis: axis.name, start: place, now: place });
                }}
                onPointerMove={(event) => drag?.axis === axis.name && setDrag({ ...drag, now: placeAt(event) })}
              />
            </g>
          );
        })}
      </svg>
      </div>
    </Card>
  );
}

function brushOf(drag: { axis: string; start: number; now: number }): Brush {
  return { axis: drag.axis, from: Math.min(drag.start, drag.now), to: Math.max(drag.start, drag.now) };
}

function shorten(text: string, most = 20): string {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

function ImportanceView({ rows, names, details }: { rows: readonly Row[]; names: readonly string[]; details: ExperimentDetails }): VNode {
  const found = useMemo(() => importances(rows, names), [rows, names]);
  const [chosen, setChosen] = useParam("hp", found[0]?.name ?? "");
  const axis = axisOf(chosen, rows, (row) => row.values.get(chosen));
  const metric = axisOf(details.metric, rows, (row) => row.metric);
  return (
    <Card title="Importance">
      <p class="muted small">How strongly each hyperparameter goes with {details.metric}: rank correlation, or the share explained by categories.</p>
      <ul class="bars">
        {found.map((one) => (
          <li key={one.name}>
            <button class={`bar${one.name === chosen ? " chosen" : ""}`} onClick={() => setChosen(one.name)}>
              <span class="bar-name">{one.name}</span>
              <span class="bar-track">
                <span class="bar-fill" style={{ width: `${one.strength * 100}%` }} />
              </span>
              <span class="num small">
                {one.direction > 0 ? "+" : one.direction < 0 ? "−" : ""}
                {one.strength.toFixed(2)}
              </span>
            </button>
          </li>
        ))}
      </ul>
      <svg class="scatter" viewBox="0 0 420 220" role="img" aria-label={`${details.metric} against ${chosen}`}>
        <line class="parallel-axis" x1={60} x2={410} y1={190} y2={190} />
        <line class="parallel-axis" x1={60} x2={60} y1={10} y2={190} />
        <text class="axis-end" x={60} y={206}>{axis.low}</text>
        <text class="axis-end" x={410} y={206} text-anchor="end">{axis.high}</text>
        <text class="axis-name" x={235} y={214} text-anchor="middle">{shorten(chosen)}</text>
        <text class="axis-end" x={54} y={18} text-anchor="end">{metric.high}</text>
        <text class="axis-end" x={54} y={190} text-anchor="end">{metric.low}</text>
        {rows.map((row) => {
          const x = axis.place(row);
          const y = metric.place(row);
          if (x === null || y === null) return null;
          return (
            <circle key={row.trial.id} class="scatter-dot" cx={66 + x * 338} cy={186 - y * 170} r={4.5} onClick={() => go(href(["trials", row.trial.id]))}>
              <title>{`trial ${row.trial.id}: ${number(row.metric)}`}</title>
            </circle>
          );
        })}
      </svg>
    </Card>
  );
}

const CELLS = 6;

function HeatMap({ rows, names, details }: { rows: readonly Row[]; names: readonly string[]; details: ExperimentDetails }): VNode {
  const [first, setFirst] = useState(names[0]!);
  const [second, setSecond] = useState(names[1] ?? names[0]!);
  const x = axisOf(first, rows, (row) => row.values.get(first));
  const y = axisOf(second, rows, (row) => row.values.get(second));
  const cells = useMemo(() => heat(rows, x, y), [rows, first, second]);
  const means = [...cells.values()].map((one) => one.sum / one.count);
  const low = Math.min(...means);
  const size = Math.max(...means) - low || 1;
  const options = names.map((name): [string, string] => [name, name]);
  return (
    <Card
      title="Pairs"
      actions={
        <>
          <Choice label="Across" value={first} options={options} onChange={setFirst} />
          <Choice label="Up" value={second} options={options} onChange={setSecond} />
        </>
      }
    >
      <svg class="heat" viewBox="0 0 420 330" role="img" aria-label={`Mean ${details.metric} by ${first} and ${second}`}>
        {[...cells].map(([place, cell]) => {
          const [column, row] = place.split(",").map(Number) as [number, number];
          const mean = cell.sum / cell.count;
          const share = (mean - low) / size;
          const best = details.smaller_is_better ? 1 - share : share;
          return (
            <g key={place}>
              <rect class="heat-cell" x={50 + column * 60} y={10 + (CELLS - 1 - row) * 46} width={57} height={43} rx={4} style={{ fillOpacity: 0.12 + 0.8 * best }}>
                <title>{`mean ${number(mean)} of ${cell.count} trials`}</title>
              </rect>
              <text class={`heat-text${best > 0.5 ? " over" : ""}`} x={50 + column * 60 + 28} y={10 + (CELLS - 1 - row) * 46 + 26} text-anchor="middle">
                {number(mean, 3)}
              </text>
            </g>
          );
        })}
        <text class="axis-end" x={50} y={302}>{x.low}</text>
        <text class="axis-end" x={410} y={302} text-anchor="end">{x.high}</text>
        <text class="axis-name" x={230} y={320} text-anchor="middle">{shorten(first)}</text>
        <text class="axis-end" x={44} y={24} text-anchor="end">{shorten(y.high, 7)}</text>
        <text class="axis-end" x={44} y={284} text-anchor="end">{shorten(y.low, 7)}</text>
      </svg>
    </Card>
  );
}

function heat(rows: readonly Row[], x: Axis, y: Axis): Map<string, { sum: number; count: number }> {
  const cells = new Map<string, { sum: number; count: number }>();
  for (const row of rows) {
    const across = x.place(row);
    const up = y.place(row);
    if (across === null || up === null) continue;
    const key = `${Math.min(CELLS - 1, Math.floor(across * CELLS))},${Math.min(CELLS - 1, Math.floor(up * CELLS))}`;
    const cell = cells.get(key) ?? { sum: 0, count: 0 };
    cells.set(key, { sum: cell.sum + row.metric, count: cell.count + 1 });
  }
  return cells;
}
