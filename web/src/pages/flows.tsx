// Flows and their runs.
import type { VNode } from "preact";
import { get } from "../lib/api";
import { ago, count, duration, moment, span } from "../lib/format";
import { useQuery } from "../lib/query";
import { href } from "../lib/router";
import { useNow } from "../lib/saved";
import type { FlowRun, FlowSummary } from "../lib/types";
import { Badge, Card, Command, Empty, Failure, Loading } from "../ui/bits";

export function FlowsPage({ flow }: { flow: string | null }): VNode {
  return flow === null ? <AllFlows /> : <Runs flow={flow} />;
}

function AllFlows(): VNode {
  const { data, error, reload } = useQuery("flows", () => get<FlowSummary[]>("/flows"), { everyMs: 3000 });
  const now = useNow();
  if (error && data === null) return <Failure error={error} retry={reload} />;
  if (data === null) return <Loading what="Loading the flows" />;
  return (
    <>
      <header class="page-head"><h1>Flows</h1></header>
      {data.length === 0 ? (
        <Empty title="No flow has been run">
          <p>A flow is a graph of steps from data to model to service. Run one, and its graph appears here.</p>
          <Command text="trek flow run flow.py" />
        </Empty>
      ) : (
        <Card>
          <table class="plain-table">
            <thead><tr><th>Flow</th><th>Last run</th><th>Started</th><th>Time</th><th>Runs</th></tr></thead>
            <tbody>
              {data.map((one) => (
                <tr key={one.name}>
                  <td><a class="strong" href={href(["flows", one.name])}>{one.name}</a></td>
                  <td><a href={href(["flows", one.name, one.last_run.id])}><Badge state={one.last_run.state} /></a></td>
                  <td><time title={moment(one.last_run.started_s)}>{ago(one.last_run.started_s, now)}</time></td>
                  <td class="num">{duration(span(one.last_run.started_s, one.last_run.ended_s, now))}</td>
                  <td class="num">{one.num_runs}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Card>
      )}
    </>
  );
}

function Runs({ flow }: { flow: string }): VNode {
  const { data, error, reload } = useQuery(`runs ${flow}`, () => get<FlowRun[]>(`/flows/${encodeURIComponent(flow)}/runs`, { limit: 200 }), { everyMs: 3000 });
  const now = useNow();
  if (error && data === null) return <Failure error={error} retry={reload} />;
  if (data === null) return <Loading />;
  return (
    <>
      <header class="page-head">
        <nav class="crumbs" aria-label="Breadcrumb"><a href="#/flows">Flows</a></nav>
        <h1>{flow}</h1>
      </header>
      <Card title={count(data.length, "run")}>
        <table class="plain-table">
          <thead><tr><th>Run</th><th>State</th><th>Steps</th><th>Started</th><th>Time</th><th>Error</th></tr></thead>
          <tbody>
            {data.map((run) => (
              <tr key={run.id}>
                <td><a class="strong" href={href(["flows", flow, run.id])}>{run.id}</a></td>
                <td><Badge state={run.state} /></td>
                <td>{Object.entries(run.num_steps).map(([state, amount]) => `${amount} ${state}`).join(", ")}</td>
                <td><time title={moment(run.started_s)}>{ago(run.started_s, now)}</time></td>
                <td class="num">{duration(span(run.started_s, run.ended_s, now))}</td>
                <td class="break">{run.error}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Card>
    </>
  );
}
