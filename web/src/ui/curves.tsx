// Curves of many trials with their controls: metric, axis, scale, smoothing, who is shown. Used by experiments, trials and comparisons.
import type { VNode } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";
import { get } from "../lib/api";
import { download, toCsv } from "../lib/csv";
import { useQuery } from "../lib/query";
import { useParam } from "../lib/router";
import { useDark } from "../lib/saved";
import { batchesIn, seriesColor, withFiner, xOf, type XAxis } from "../lib/series";
import type { Curve, MetricNames } from "../lib/types";
import { Card, Choice, Empty, Failure, Loading, Toggle } from "./bits";
import { Chart, type Series } from "./chart";
import { toSvg } from "./svg-export";

interface Props {
  /** What to ask for: all trials of an experiment, or these. */
  experimentId?: number;
  trialIds?: readonly number[];
  numTrials?: number;
  /** The metric that is shown first. */
  metric?: string;
  labelOf: (trialId: number) => string;
  subjects: readonly string[];
  /** Trials to show; null for all. */
  only?: ReadonlySet<number> | null;
  onOnly?: (trials: Set<number> | null) => void;
  title?: string;
  isLive?: boolean;
}

const SMOOTHING = [["0", "none"], ["0.6", "light"], ["0.9", "medium"], ["0.97", "strong"]] as const;
const AXES = [["batches", "batches"], ["epochs", "epochs"], ["time", "time"]] as const;

export function Curves(props: Props): VNode {
  const { experimentId, trialIds, labelOf, subjects, only = null } = props;
  const owner = { experiment_id: experimentId, trials: trialIds?.join(",") };
  const ownerKey = `${experimentId ?? ""}:${trialIds?.join() ?? ""}`;
  const names = useQuery(`names ${ownerKey}`, () => get<MetricNames[]>("/metric-names", owner), { subjects });
  const choices = useMemo(() => metricChoices(names.data ?? []), [names.data]);
  const [chosen, setChosen] = useParam("metric", defaultMetric(choices, props.metric));
  const [axis, setAxis] = useParam("x", "batches");
  const [scale, setScale] = useParam("scale", "linear");
  const [weight, setWeight] = useParam("smooth", "0");
  const [group = "", metric = ""] = splitMetric(chosen);
  const numTrials = props.numTrials ?? trialIds?.length ?? 1;
  const withTimes = axis !== "batches";
  const curves = useQuery(
    `curves ${ownerKey} ${chosen} ${withTimes} ${weight}`,
    () => get<Curve[]>("/curves", { ...owner, group, metric, max_points: maxPoints(numTrials), with_times: withTimes, smoothing: weight }),
    { subjects, isEnabled: Boolean(group && metric) },
  );
  const [zoom, setZoom] = useState<readonly [number, number] | null>(null);
  const whole = curves.data ?? [];
  const extent = useMemo(() => (zoom ? batchesIn(whole, axis as XAxis, zoom) : null), [curves.data, axis, zoom]);
  const finerOwner = only ? { trials: [...only].join(",") } : owner;
  const finer = useQuery(
    `finer ${ownerKey} ${chosen} ${withTimes} ${weight} ${finerOwner.trials} ${extent}`,
    () => get<Curve[]>("/curves", { ...finerOwner, group, metric, max_points: maxPoints(only?.size ?? numTrials), with_times: withTimes, smoothing: weight, first: extent?.[0], last: extent?.[1] }),
    { subjects, isEnabled: extent !== null || (only !== null && maxPoints(only.size) > maxPoints(numTrials)) },
  );
  const dark = useDark();
  const series = useMemo(
    () => toSeries(whole, finer.data ?? [], { axis: axis as XAxis, labelOf, only, dark }),
    [curves.data, finer.data, axis, only, dark, labelOf],
  );
  const canvas = useRef<HTMLCanvasElement | null>(null);

  if (names.error) return <Failure error={names.error} retry={names.reload} />;
  if (names.isLoading) return <Loading what="Loading the curves" />;
  if (choices.length === 0) {
    return (
      <Card title={props.title ?? "Learning curves"}>
        <Empty title="No metrics yet">
          <p>{props.isLive ? "The curves begin with the first report of a trial, after a few batches." : "No trial reported a metric."}</p>
        </Empty>
      </Card>
    );
  }
  const xLabel = axis === "time" ? "seconds" : axis;
  return (
    <Card
      title={props.title ?? "Learning curves"}
      actions={
        <>
          <Choice label="Metric" value={chosen} options={choices} onChange={setChosen} />
          <Choice label="Over" value={axis} options={AXES} onChange={setAxis} />
          <Choice label="Smoothing" value={weight} options={SMOOTHING} onChange={setWeight} />
          <Toggle label="Log scale" value={scale === "log"} onChange={(isLog) => setScale(isLog ? "log" : "linear")} />
          {only && (
            <button class="button small" onClick={() => props.onOnly?.(null)}>
              Show all
            </button>
          )}
          <Export name={`${chosen}`} series={series} xLabel={xLabel} isLog={scale === "log"} canvas={() => canvas.current} />
        </>
      }
    >
      {curves.error && <Failure error={curves.error} retry={curves.reload} />}
      {curves.data === null && !curves.error ? (
        <div class="chart-wait">
          <Loading what="Loading the curves" />
        </div>
      ) : (
        <Chart
          label={`${chosen} over ${xLabel}, ${series.length} series`}
          series={series}
          isLog={scale === "log"}
          xLabel={xLabel}
          height={340}
          onZoom={setZoom}
          onPick={(id) => props.onOnly?.(only ? null : new Set([Number(id)]))}
          canvas={(element) => (canvas.current = element)}
        />
      )}
      {series.length > 1 && series.length <= 12 && (
        <ul class="legend">
          {series.map((one) => (
            <li key={one.id}>
              <button class="legend-item" onClick={() => props.onOnly?.(only ? null : new Set([Number(one.id)]))}>
                <span class="swatch" style={{ background: one.color }} /> {one.label}
              </button>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

function Export({ name, series, xLabel, isLog, canvas }: { name: string; series: readonly Series[]; xLabel: string; isLog: boolean; canvas: () => HTMLCanvasElement | null }): VNode {
  const file = name.replace(/[^\w.-]+/g, "_");
  const save = (kind: string) => {
    if (kind === "csv") {
      const rows = series.flatMap((one) => one.xs.map((x, at) => [one.label, x, one.ys[at]!]));
      download(`${file}.csv`, toCsv([["series", xLabel, name], ...rows]), "text/csv");
    } else if (kind === "svg") {
      download(`${file}.svg`, toSvg(series, { title: name, xLabel, isLog }), "image/svg+xml");
    } else {
      canvas()?.toBlob((blob) => blob && download(`${file}.png`, blob));
    }
  };
  return (
    <Choice
      label="Export"
      value=""
      options={[["", "as …"], ["csv", "CSV"], ["png", "PNG"], ["svg", "SVG"]]}
      onChange={(kind) => kind && save(kind)}
    />
  );
}

export function metricChoices(names: readonly MetricNames[]): [string, string][] {
  return names
    .filter((one) => !one.group.startsWith("system"))
    .flatMap(({ group, names: metrics }) => metrics.map((metric): [string, string] => [`${group}/${metric}`, `${metric} (${group})`]));
}

/** The screen has about a thousand columns: with many curves, fewer points of each can be told apart. */
function maxPoints(numCurves: number): number {
  return numCurves > 40 ? 120 : 400;
}

/** Before the names are known, the searcher's metric is taken to be a validation's: its curves need not wait for them. */
function defaultMetric(choices: readonly [string, string][], metric: string | undefined): string {
  if (choices.length === 0) return metric ? `validation/${metric}` : "";
  const wanted = choices.find(([id]) => id === `validation/${metric}`) ?? choices.find(([id]) => id.endsWith(`/${metric}`));
  return (wanted ?? choices.find(([id]) => id.startsWith("validation/")) ?? choices[0])?.[0] ?? "";
}

export function splitMetric(chosen: string): [string?, string?] {
  const at = chosen.indexOf("/");
  return at < 0 ? [] : [chosen.slice(0, at), chosen.slice(at + 1)];
}

export function toSeries(
  curves: readonly Curve[],
  finer: readonly Curve[],
  { axis, labelOf, only, dark }: { axis: XAxis; labelOf: (trial: number) => string; only: ReadonlySet<number> | null; dark: boolean },
): Series[] {
  return withFiner(curves, finer)
    .map((curve, index): Series & { trial: number } => ({
      trial: curve.trial_id,
      id: String(curve.trial_id),
      label: labelOf(curve.trial_id),
      color: seriesColor(index, dark),
      xs: xOf(curve, axis, curves[index]!.times[0]),
      ys: curve.values,
      numUndefined: curve.num_undefined,
    }))
    .filter((one) => only === null || only.has(one.trial));
}
