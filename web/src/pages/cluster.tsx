// The control plane: its slots, who holds them, and who waits why.
import type { VNode } from "preact";
import { get } from "../lib/api";
import { useQuery } from "../lib/query";
import { href } from "../lib/router";
import type { Cluster, Job } from "../lib/types";
import { Badge, Card, Empty, Fact, Failure, Loading } from "../ui/bits";

export function ClusterPage(): VNode {
  const cluster = useQuery("cluster", () => get<Cluster>("/cluster"), { everyMs: 5000 });
  const jobs = useQuery("jobs", () => get<Job[]>("/jobs"), { everyMs: 5000 });
  if (cluster.error && cluster.data === null) return <Failure error={cluster.error} retry={cluster.reload} />;
  if (cluster.data === null || jobs.data === null) return <Loading what="Loading the cluster" />;
  const running = jobs.data.filter((job) => job.state === "running");
  const queued = jobs.data.filter((job) => job.state !== "running");
  const held = running.flatMap((job) => Array.from({ length: job.slots }, () => job)).slice(0, cluster.data.slots);
  return (
    <>
      <header class="page-head"><h1>Cluster</h1></header>
      <dl class="facts">
        <Fact label="Slots"><span class="figure">{cluster.data.slots - cluster.data.free_slots} / {cluster.data.slots}</span></Fact>
        <Fact label="Running trials">{cluster.data.running_trials}</Fact>
        <Fact label="Queued trials">{cluster.data.queued_trials}</Fact>
        <Fact label="Active experiments">{cluster.data.active_experiments}</Fact>
        <Fact label="Version">{cluster.data.version}</Fact>
        <Fact label="Process">{cluster.data.pid}</Fact>
      </dl>
      <Card title="Slots">
        <ul class="slots" aria-label="Slots">
          {Array.from({ length: Math.min(cluster.data.slots, 512) }, (_, at) => {
            const job = held[at];
            return (
              <li key={at} class={job ? "slot held" : "slot"}>
                {job ? <a href={href(["trials", job.trial_id])} title={job.name}>trial {job.trial_id}<span class="small">{job.name}</span></a> : <span class="muted">free</span>}
              </li>
            );
          })}
        </ul>
      </Card>
      <Card title="Queue">
        {queued.length === 0 ? <Empty title="Nobody waits"><p>Trials that need slots appear here, with the reason why they wait.</p></Empty> : (
          <div class="scroll-x">
            <table class="plain-table">
              <thead><tr><th>Trial</th><th>Experiment</th><th>State</th><th>Slots</th><th>Priority</th><th>Waits because</th></tr></thead>
              <tbody>
                {queued.map((job) => (
                  <tr key={job.trial_id}>
                    <td><a href={href(["trials", job.trial_id])}>{job.trial_id}</a></td>
                    <td><a href={href(["experiments", job.experiment_id])}>{job.experiment_id} {job.name}</a></td>
                    <td><Badge state={job.state} /></td>
                    <td class="num">{job.slots}</td>
                    <td class="num">{job.priority}</td>
                    <td class="break">{job.waiting || "the next free slots are its own"}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Card>
    </>
  );
}
