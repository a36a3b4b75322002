// One run of a flow: its graph with live state, and the step that was clicked.
import type { VNode } from "preact";
import { get } from "../lib/api";
import { duration, moment, span, value } from "../lib/format";
import { layoutGraph } from "../lib/layout";
import { parts } from "../lib/ansi";
import { useQuery } from "../lib/query";
import { href, useParam } from "../lib/router";
import { useNow } from "../lib/saved";
import type { FlowRunDetails, FlowStep } from "../lib/types";
import { Badge, Card, Fact, Failure, Loading } from "../ui/bits";

const BOX = { width: 164, height: 58, gapX: 44, gapY: 22 };

export function FlowRunPage({ flow, run }: { flow: string; run: string }): VNode {
  const path = `/flows/${encodeURIComponent(flow)}/runs/${encodeURIComponent(run)}`;
  const { data, error, reload } = useQuery(path, () => get<FlowRunDetails>(path), { everyMs: 1500 });
  const [chosen, setChosen] = useParam("step");
  const now = useNow(data?.state === "running");
  if (error && data === null) return <Failure error={error} retry={reload} />;
  if (data === null) return <Loading what="Loading the run" />;
  const step = data.steps.find((one) => one.name === chosen) ?? null;
  return (
    <>
      <header class="page-head">
        <nav class="crumbs" aria-label="Breadcrumb"><a href="#/flows">Flows</a> / <a href={href(["flows", flow])}>{flow}</a></nav>
        <div class="title-row"><h1>{run}</h1><Badge state={data.state} /></div>
      </header>
      <dl class="facts">
        <Fact label="Started">{moment(data.started_s)}</Fact>
        <Fact label="Time">{duration(span(data.started_s, data.ended_s, now))}</Fact>
        <Fact label="Steps">{Object.entries(data.num_steps).map(([state, amount]) => `${amount} ${state}`).join(", ") || data.steps.length}</Fact>
        <Fact label="Cache hits">{data.steps.filter((one) => one.state === "cached").length}</Fact>
        {Object.entries(data.params).map(([name, one]) => <Fact key={name} label={name}>{value(one)}</Fact>)}
      </dl>
      <Card title="Graph"><Graph run={data} chosen={chosen} onChoose={setChosen} /></Card>
      {step && <StepView path={path} step={step} after={data.graph.find((one) => one.name === step.name)?.after ?? []} waited={data.graph.filter((one) => one.after.includes(step.name)).map((one) => one.name)} onChoose={setChosen} />}
    </>
  );
}

function Graph({ run, chosen, onChoose }: { run: FlowRunDetails; chosen: string; onChoose: (step: string) => void }): VNode {
  const nodes = run.graph.length > 0 ? run.graph : run.steps.map((one) => ({ name: one.name, after: [] }));
  const placed = layoutGraph(nodes);
  const at = new Map(placed.map((one) => [one.name, { x: 10 + one.column * (BOX.width + BOX.gapX), y: 10 + one.row * (BOX.height + BOX.gapY) }]));
  const steps = new Map(run.steps.map((one) => [one.name, one]));
  const width = 20 + Math.max(...placed.map((one) => one.column + 1), 1) * (BOX.width + BOX.gapX) - BOX.gapX;
  const height = 20 + Math.max(...placed.map((one) => one.row + 1), 1) * (BOX.height + BOX.gapY) - BOX.gapY;
  return (
    <div class="scroll-x">
      <svg class="graph" width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="group" aria-label="Steps">
        {nodes.flatMap((node) =>
          node.after.filter((one) => at.has(one)).map((before) => {
            const [a, b] = [at.get(before)!, at.get(node.name)!];
            const [x1, y1, x2, y2] = [a.x + BOX.width, a.y + BOX.height / 2, b.x, b.y + BOX.height / 2];
            return <path key={`${before}>${node.name}`} class="edge" d={`M${x1} ${y1} C${x1 + 30} ${y1} ${x2 - 30} ${y2} ${x2} ${y2}`} />;
          }),
        )}
        {placed.map(({ name }) => {
          const step = steps.get(name);
          const { x, y } = at.get(name)!;
          const open = () => onChoose(name);
          const shown = name.length > 18 ? `${name.slice(0, 17)}…` : name;
          const note = `${step?.state ?? "pending"}${step?.seconds != null ? ` · ${duration(step.seconds)}` : ""}`;
          return (
            <g key={name} class={`node state-${step?.state ?? "pending"}${chosen === name ? " chosen" : ""}`} transform={`translate(${x},${y})`} role="button" tabIndex={0} aria-label={`${shown} ${note}`} onClick={open} onKeyDown={(event) => (event.key === "Enter" || event.key === " ") && open()}>
              {shown !== name && <title>{name}</title>}
              <rect width={BOX.width} height={BOX.height} rx={8} />
              <rect class="node-bar" width={5} height={BOX.height - 12} x={6} y={6} rx={2.5} />
              <text class="node-name" x={20} y={25}>{shown}</text>{" "}
              <text class="node-note" x={20} y={44}>{note}</text>
            </g>
          );
        })}
      </svg>
    </div>
  );
}

function StepView({ path, step, after, waited, onChoose }: { path: string; step: FlowStep; after: string[]; waited: string[]; onChoose: (step: string) => void }): VNode {
  const log = useQuery(`log ${path} ${step.name}`, () => get<{ text: string }>(`${path}/log`, { step: step.name }), { everyMs: step.state === "running" ? 1500 : null });
  const links = (names: string[]) => (names.length === 0 ? "–" : names.map((one) => <button key={one} class="link" onClick={() => onChoose(one)}>{one} </button>));
  return (
    <Card title={step.name}>
      <dl class="facts plain">
        <Fact label="State"><Badge state={step.state} /></Fact>
        <Fact label="Time">{duration(step.seconds)}</Fact>
        <Fact label="Attempt">{step.attempt}</Fact>
        <Fact label="Takes the results of">{links(after)}</Fact>
        <Fact label="Gives its results to">{links(waited)}</Fact>
        {step.reason && <Fact label="Why it ran">{step.reason}</Fact>}
      </dl>
      {step.error && <div class="failure" role="alert">{step.error}</div>}
      <h3>Log</h3>
      {log.error ? <p class="muted">{log.error.message}</p> : log.data === null ? <Loading /> : log.data.text === "" ? <p class="muted">It wrote nothing.</p> : (
        <pre class="code" tabIndex={0} aria-label="Log">{log.data.text.split("\n").map((line, at) => <span key={at}>{parts(line).map((part) => <span class={part.style}>{part.text}</span>)}{"\n"}</span>)}</pre>
      )}
    </Card>
  );
}
