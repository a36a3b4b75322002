// Learning curves: many series with points of their own, zoomed by dragging, the one under the pointer brought forward.
import type { VNode } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { count, number } from "../lib/format";
import { useDark } from "../lib/saved";
import { nearest, stretches } from "../lib/series";

export interface Series {
  id: string;
  label: string;
  color: string;
  xs: readonly number[];
  /** Null where a value is not finite: the line has a gap there. */
  ys: readonly (number | null)[];
  numUndefined?: number;
  isDashed?: boolean;
}

interface Props {
  label: string;
  series: readonly Series[];
  isLog?: boolean;
  xLabel: string;
  height?: number;
  /** Called with the series that was clicked. */
  onPick?: (id: string) => void;
  /** Called with the part of the axis that is shown; null for all of it. */
  onZoom?: (range: readonly [number, number] | null) => void;
  format?: (value: number) => string;
  canvas?: (element: HTMLCanvasElement | null) => void;
}

interface Hover {
  left: number;
  top: number;
  at: number;
  series: Series;
}

const REACH_PX = 40;

export function Chart(props: Props): VNode {
  const numUndefined = props.series.reduce((sum, one) => sum + (one.numUndefined ?? 0), 0);
  if (!props.series.some((one) => one.ys.some((y) => y !== null))) {
    return (
      <div class="chart-wait" style={{ height: `${props.height ?? 300}px` }}>
        {numUndefined > 0 ? `No finite values: ${undefinedNote(numUndefined)}` : "No points"}
      </div>
    );
  }
  return (
    <>
      <Plot {...props} />
      {numUndefined > 0 && <p class="chart-note muted">{undefinedNote(numUndefined)}</p>}
    </>
  );
}

function undefinedNote(amount: number): string {
  return `${count(amount, "value")} ${amount === 1 ? "is" : "are"} NaN or infinite.`;
}

function Plot({ label, series, isLog = false, xLabel, height = 300, onPick, onZoom, format = number, canvas }: Props): VNode {
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const shown = useRef(series);
  const [hover, setHover] = useState<Hover | null>(null);
  const [zoom, setZoom] = useState<readonly [number, number] | null>(null);
  const zoomed = useRef(zoom);
  zoomed.current = zoom;
  const tellZoom = useRef(onZoom);
  tellZoom.current = onZoom;
  const dark = useDark();
  const data = useMemo(() => toData(series, isLog), [series, isLog]);
  const shape = `${series.map((one) => `${one.id}${one.color}`).join()}|${isLog}|${xLabel}|${dark}|${height}`;
  shown.current = series;

  useEffect(() => {
    const element = holder.current!;
    const made = new uPlot(options(shown.current, { isLog, xLabel, dark, height, width: element.clientWidth, format }), data as unknown as uPlot.AlignedData, element);
    plot.current = made;
    canvas?.(made.ctx.canvas);
    if (zoomed.current) tellZoom.current?.(null);
    setZoom(null);
    made.hooks.setSelect = [
      (u) => {
        if (u.select.width < 4) return;
        const [from, to] = [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")];
        u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        u.setScale("x", { min: from, max: to });
        setZoom([from, to]);
        tellZoom.current?.([from, to]);
      },
    ];
    const onMove = (event: PointerEvent) => setHover(find(made, shown.current, event));
    const onLeave = () => setHover(null);
    made.over.addEventListener("pointermove", onMove);
    made.over.addEventListener("pointerleave", onLeave);
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
      canvas?.(null);
    };
  }, [shape]);

  useEffect(() => {
    if (plot.current && (plot.current.data as unknown) !== data) {
      const shownPart = zoomed.current;
      plot.current.setData(data as unknown as uPlot.AlignedData, shownPart === null);
      if (shownPart) plot.current.setScale("x", { min: shownPart[0], max: shownPart[1] });
    }
  }, [data]);

  const reset = () => {
    plot.current?.setData(data as unknown as uPlot.AlignedData, true);
    if (zoom) onZoom?.(null);
    setZoom(null);
  };
  const isFlipped = hover !== null && hover.left > (holder.current?.clientWidth ?? 0) - 240;
  return (
    <figure class="chart" aria-label={label} data-points={series.reduce((sum, one) => sum + one.xs.length, 0)}>
      <div
        ref={holder}
        class="chart-area"
        style={{ height: `${height}px` }}
        onDblClick={reset}
        onClick={() => hover && onPick?.(hover.series.id)}
      />
      {zoom && (
        <button class="button small chart-reset" onClick={reset}>
          Reset zoom
        </button>
      )}
      {hover && (
        <>
          <span class="chart-dot" style={{ left: `${hover.left}px`, top: `${hover.top}px`, background: hover.series.color }} />
          <div class={`chart-tip${isFlipped ? " flipped" : ""}`} style={{ left: `${hover.left}px`, top: `${hover.top}px` }}>
            <span class="swatch" style={{ background: hover.series.color }} /> <strong>{hover.series.label}</strong>
            <br />
            {format(hover.series.ys[hover.at]!)} <span class="muted">at {number(hover.series.xs[hover.at]!)} {xLabel}</span>
          </div>
        </>
      )}
    </figure>
  );
}

type Faceted = [null, ...[number[], (number | null)[]][]];

function toData(series: readonly Series[], isLog: boolean): Faceted {
  // A logarithm has no place for values of zero and below.
  return [null, ...series.map((one): [number[], (number | null)[]] => [one.xs as number[], isLog ? one.ys.map((y) => (y !== null && y > 0 ? y : null)) : (one.ys as (number | null)[])])];
}

function options(
  series: readonly Series[],
  { isLog, xLabel, dark, height, width, format }: { isLog: boolean; xLabel: string; dark: boolean; height: number; width: number; format: (value: number) => string },
): uPlot.Options {
  const ink = dark ? "#a9b4c0" : "#5b6672";
  const grid = { stroke: dark ? "#2a323b" : "#e8ebee", width: 1 };
  const font = "12px system-ui, sans-serif";
  return {
    mode: 2,
    width: Math.max(width, 50),
    height,
    legend: { show: false },
    cursor: { points: { show: false }, drag: { x: true, y: false, setScale: false }, y: false },
    scales: {
      x: { time: false, auto: true, range: (_, low, high) => xRange(low, high) },
      y: { auto: true, distr: isLog ? 3 : 1, range: (_, low, high) => (isLog ? decades(low, high) : padded(low, high)) },
    },
    axes: [
      { stroke: ink, font, grid, ticks: { ...grid, size: 4 }, label: xLabel, labelFont: font, labelSize: 18, size: 34, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : compact(tick))) },
      { stroke: ink, font, grid, ticks: { ...grid, size: 4 }, size: 62, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : format(tick))) },
    ],
    series: [
      null as unknown as uPlot.Series,
      ...series.map(
        (one): uPlot.Series => ({
          label: one.label,
          stroke: one.color,
          width: series.length > 40 ? 1 : 1.75,
          ...(one.isDashed ? { dash: [6, 4] } : {}),
          alpha: series.length > 60 ? 0.7 : 1,
          points: { show: false },
          paths: linesOf,
          facets: [
            { scale: "x", auto: true },
            { scale: "y", auto: true },
          ],
        }),
      ),
    ],
  };
}

function facets(u: uPlot, at: number): [number[], (number | null)[]] {
  return u.data[at] as unknown as [number[], (number | null)[]];
}

/** A line for each stretch between gaps; a point alone has no line, and is a dot. */
function linesOf(u: uPlot, at: number): uPlot.Series.Paths {
  const [xs, ys] = facets(u, at);
  const path = new Path2D();
  const radius = 2 * devicePixelRatio;
  for (const [first, last] of stretches(ys)) {
    for (let index = first; index <= last; index++) {
      const [left, top] = [u.valToPos(xs[index]!, "x", true), u.valToPos(ys[index]!, "y", true)];
      if (index > first) path.lineTo(left, top);
      else path.moveTo(first === last ? left + radius : left, top);
      if (first === last) path.arc(left, top, radius, 0, 2 * Math.PI);
    }
  }
  return { stroke: path };
}

/** The part of the axis to show; a single point needs room around it. */
export function xRange(low: number | null, high: number | null): [number, number] {
  if (low === null || high === null) return [0, 1];
  return low === high ? [low - 1, high + 1] : [low, high];
}

export function decades(low: number | null, high: number | null): [number, number] {
  if (low === null || high === null || low <= 0) return [0.1, 1];
  const [from, to] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  return [10 ** from, 10 ** (from === to ? to + 1 : to)];
}

export function padded(low: number | null, high: number | null): [number, number] {
  if (low === null || high === null) return [0, 1];
  const pad = (high - low || Math.abs(high) || 1) * 0.06;
  return [low >= 0 && low - pad < 0 ? 0 : low - pad, high + pad];
}

function compact(value: number): string {
  return Math.abs(value) >= 10_000 ? new Intl.NumberFormat("en-US", { notation: "compact" }).format(value) : number(value);
}

/** The point under the pointer: of all series the one whose point at this place is nearest. */
function find(u: uPlot, series: readonly Series[], event: PointerEvent): Hover | null {
  const box = u.over.getBoundingClientRect();
  const [px, py] = [event.clientX - box.left, event.clientY - box.top];
  const x = u.posToVal(px, "x");
  let best: Hover | null = null;
  let distance = REACH_PX * REACH_PX;
  for (const one of series) {
    const at = nearest(one.xs, x);
    const y = one.ys[at] ?? null;
    if (y === null) continue;
    const left = u.valToPos(one.xs[at]!, "x");
    const top = u.valToPos(y, "y");
    const far = (left - px) ** 2 + (top - py) ** 2;
    if (far < distance) {
      distance = far;
      best = { left: left + u.over.offsetLeft, top: top + u.over.offsetTop, at, series: one };
    }
  }
  return best;
}
