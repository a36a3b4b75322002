// One trial: curves of every metric group, log, checkpoints, history, system metrics.
import type { VNode } from "preact";
import { useMemo, useState } from "preact/hooks";
import { get, post } from "../lib/api";
import { ago, bytes, duration, lengthText, moment, number, span, value } from "../lib/format";
import { flatten } from "../lib/flatten";
import { useQuery } from "../lib/query";
import { href, useParam } from "../lib/router";
import { useDark, useNow } from "../lib/saved";
import { seriesColor } from "../lib/series";
import { ENDED, type Checkpoint, type Curve, type Experiment, type MetricNames, type RegisteredModel, type Trial, type TrialEvent } from "../lib/types";
import { mayChange, mayCreate, useUser } from "../lib/user";
import { act, Badge, Card, Dialog, Empty, Fact, Failure, Loading, Progress, Tabs } from "../ui/bits";
import { Chart } from "../ui/chart";
import { Curves } from "../ui/curves";
import { Artifacts } from "../ui/artifacts";
import { LogView } from "../ui/log-view";
import { WorkerTimeline } from "../ui/worker-timeline";

export function TrialPage({ id }: { id: number }): VNode {
  const { data: trial, error, reload } = useQuery(`trial ${id}`, () => get<Trial>(`/trials/${id}`), { subjects: [`metrics:${id}`] });
  const [tab, setTab] = useParam("tab", "overview");
  if (error && trial === null) return <Failure error={error} retry={reload} />;
  if (trial === null) return <Loading what="Loading the trial" />;
  const isLive = !ENDED.includes(trial.state);
  const tabs = [
    { id: "overview", title: "Overview" },
    { id: "logs", title: "Logs" },
    { id: "checkpoints", title: "Checkpoints" },
    { id: "artifacts", title: "Artifacts" },
    { id: "system", title: "System" },
    { id: "history", title: "History" },
  ];
  return (
    <>
      <Head trial={trial} reload={reload} />
      <Tabs tabs={tabs} chosen={tab} onChoose={setTab} />
      {tab === "overview" && <Overview trial={trial} isLive={isLive} />}
      {tab === "logs" && <LogView owner={`/trials/${id}`} subjects={[`logs:${id}`]} isLive={isLive} ranks={trial.slots} />}
      {tab === "checkpoints" && <Checkpoints trial={trial} />}
      {tab === "artifacts" && <Artifacts trial={trial} />}
      {tab === "system" && <System trial={trial} isLive={isLive} />}
      {tab === "history" && (
        <>
          <WorkerTimeline trial={trial} isLive={isLive} />
          <History trial={trial} />
        </>
      )}
    </>
  );
}

function Head({ trial, reload }: { trial: Trial; reload: () => void }): VNode {
  const user = useUser();
  const experiment = useQuery(`head ${trial.experiment_id}`, () => get<Experiment>(`/experiments/${trial.experiment_id}`), { subjects: null });
  const [isAsking, setAsking] = useState(false);
  const isOwn = experiment.data !== null && mayChange(user, experiment.data.owner);
  return (
    <header class="page-head">
      <nav class="crumbs" aria-label="Breadcrumb">
        <a href={href(["experiments"])}>Experiments</a> / <a href={href(["experiments", trial.experiment_id])}>{experiment.data?.name ?? `experiment ${trial.experiment_id}`}</a>
      </nav>
      <div class="title-row">
        <h1>Trial {trial.id}</h1>
        <Badge state={trial.state} />
        <div class="actions">
          {isOwn && !ENDED.includes(trial.state) && <button class="button danger" onClick={() => setAsking(true)}>Kill</button>}
          <a class="button" href={href(["compare"], { trials: trial.id })}>Compare …</a>
        </div>
      </div>
      {trial.waiting && <div class="banner">Waiting: {trial.waiting}</div>}
      {trial.error && (
        <div class="failure" role="alert">
          <strong>Error:</strong> {trial.error}
          {trial.traceback && <pre class="code" tabIndex={0} aria-label="Traceback">{trial.traceback}</pre>}
        </div>
      )}
      {isAsking && (
        <Dialog title="Kill this trial?" onClose={() => setAsking(false)}>
          <p>Its searcher counts it as failed; the other trials go on.</p>
          <div class="dialog-actions">
            <button class="button danger" onClick={() => { setAsking(false); void act(() => post(`/trials/${trial.id}/kill`), "Ending the trial.").then(reload); }}>Kill</button>
          </div>
        </Dialog>
      )}
    </header>
  );
}

function Overview({ trial, isLive }: { trial: Trial; isLive: boolean }): VNode {
  const now = useNow(isLive);
  const names = useQuery(`names ${trial.id}`, () => get<MetricNames[]>("/metric-names", { trials: trial.id }), { subjects: [`metrics:${trial.id}`] });
  const labelOf = useMemo(() => (one: number) => `trial ${one}`, []);
  const unit = Object.entries(trial.length)[0];
  return (
    <>
      <dl class="facts">
        <Fact label="Progress"><Progress value={trial.progress} state={trial.state} /></Fact>
        <Fact label="Best metric"><span class="figure">{number(trial.best_metric)}</span></Fact>
        <Fact label="Batches">{number(trial.batches)}</Fact>
        <Fact label="Trains for">{unit ? lengthText(unit[1], unit[0]) : "–"}</Fact>
        <Fact label="Processes">{trial.slots}</Fact>
        <Fact label="Restarts">{trial.restarts}</Fact>
        <Fact label="Duration">{duration(span(trial.started_s, trial.ended_s, now))}</Fact>
        <Fact label="Seed">{trial.seed}</Fact>
      </dl>
      <Curves trialIds={[trial.id]} labelOf={labelOf} subjects={[`metrics:${trial.id}`]} isLive={isLive} />
      <MetricGroups trial={trial} names={names.data ?? []} />
      <Card title="Hyperparameters">
        <dl class="facts plain">{[...flatten(trial.hparams)].map(([name, one]) => <Fact key={name} label={name}>{value(one)}</Fact>)}</dl>
      </Card>
    </>
  );
}

/** A small chart of each metric, by group. */
function MetricGroups({ trial, names }: { trial: Trial; names: readonly MetricNames[] }): VNode {
  return (
    <>
      {names.filter((one) => !one.group.startsWith("system")).map((group) => (
        <Card key={group.group} title={group.group}>
          <div class="small-charts">
            {group.names.slice(0, 24).map((metric) => <SmallChart key={metric} trial={trial} group={group.group} metric={metric} title={metric} />)}
          </div>
        </Card>
      ))}
    </>
  );
}

function SmallChart({ trial, group, metric, title, scale = 1, isTime = false }: { trial: Trial; group: string; metric: string; title: string; scale?: number; isTime?: boolean }): VNode {
  const dark = useDark();
  const { data } = useQuery(`small ${trial.id} ${group} ${metric}`, () => get<Curve[]>("/curves", { trials: trial.id, group, metric, max_points: 200, with_times: isTime }), { subjects: [`metrics:${trial.id}`] });
  const series = useMemo(
    () => (data ?? []).map((curve) => {
      const first = trial.started_s ?? curve.times[0] ?? 0;
      const xs = isTime ? curve.times.map((time) => time - first) : curve.batches;
      return { id: metric, label: title, color: seriesColor(0, dark), xs, ys: curve.values.map((one) => (one === null ? null : one * scale)), numUndefined: curve.num_undefined };
    }),
    [data, dark],
  );
  return (
    <div class="small-chart">
      <h3>{title} <span class="num muted">{number(series[0]?.ys.at(-1))}</span></h3>
      <Chart label={title} series={series} xLabel={isTime ? "seconds" : "batches"} height={150} />
    </div>
  );
}

const SYSTEM: Record<string, [string, number]> = {
  records_per_s: ["Records per second", 1],
  data_wait: ["Waiting for data, %", 100],
  learning_rate: ["Learning rate", 1],
  cpu_percent: ["CPU, %", 1],
  memory_bytes: ["Memory, MiB", 1 / 2 ** 20],
  gpu_percent: ["GPU, %", 1],
  gpu_memory_bytes: ["GPU memory, MiB", 1 / 2 ** 20],
  disk_read_bytes_per_s: ["Disk read, MiB/s", 1 / 2 ** 20],
  disk_write_bytes_per_s: ["Disk written, MiB/s", 1 / 2 ** 20],
  network_received_bytes_per_s: ["Network in, MiB/s", 1 / 2 ** 20],
  network_sent_bytes_per_s: ["Network out, MiB/s", 1 / 2 ** 20],
  data_wait_percent: ["Waiting for data, %", 1],
};

function System({ trial, isLive }: { trial: Trial; isLive: boolean }): VNode {
  const names = useQuery(`names ${trial.id}`, () => get<MetricNames[]>("/metric-names", { trials: trial.id }), { subjects: isLive ? [`metrics:${trial.id}`] : null });
  const groups = (names.data ?? []).filter((one) => one.group.startsWith("system"));
  if (names.isLoading) return <Loading />;
  if (groups.length === 0) {
    return <Empty title="No system metrics"><p>Trial processes report CPU, memory, disk and network use every few seconds{isLive ? "; the first figures come soon." : "; this trial ended before the first report."}</p></Empty>;
  }
  return (
    <>
      {groups.map((group) => (
        <Card key={group.group} title={group.group === "system" ? "Training" : group.group.replace("system.", "Machine, rank ")}>
          <div class="small-charts">
            {group.names.map((metric) => {
              const [title, scale] = SYSTEM[metric] ?? [metric, 1];
              return <SmallChart key={metric} trial={trial} group={group.group} metric={metric} title={title} scale={scale} isTime />;
            })}
          </div>
        </Card>
      ))}
    </>
  );
}

function Checkpoints({ trial }: { trial: Trial }): VNode {
  const user = useUser();
  const now = useNow(false);
  const [registering, setRegistering] = useState<Checkpoint | null>(null);
  const { data, error, reload } = useQuery(`checkpoints ${trial.id}`, () => get<Checkpoint[]>("/checkpoints", { trial_id: trial.id }), { subjects: [`metrics:${trial.id}`] });
  if (error) return <Failure error={error} retry={reload} />;
  if (data === null) return <Loading />;
  if (data.length === 0) return <Empty title="No checkpoints"><p>They are saved at the end, and every `checkpoint_period` if the config has one.</p></Empty>;
  return (
    <Card title="Checkpoints">
      <div class="scroll-x">
        <table class="plain-table">
          <thead><tr><th>Checkpoint</th><th>Batches</th><th>Metrics</th><th>Size</th><th>Saved</th><th><span class="hidden">Actions</span></th></tr></thead>
          <tbody>
            {data.map((one) => (
              <tr key={one.uuid}>
                <td><code>{one.uuid.slice(0, 16)}</code>{one.uuid === trial.checkpoint ? " (newest)" : ""}</td>
                <td class="num">{number(one.batches)}</td>
                <td>{Object.entries(one.metrics).slice(0, 3).map(([name, metric]) => `${name} ${number(metric)}`).join(", ")}</td>
                <td class="num">{bytes(one.num_bytes)}</td>
                <td><time title={moment(one.time_s)}>{ago(one.time_s, now)}</time></td>
                <td class="row-actions">
                  <a class="button small" href={`api/v1/checkpoints/${encodeURIComponent(one.uuid)}/files`} download={`${one.uuid}.tar`}>Download</a>
                  {mayCreate(user) && <button class="button small" onClick={() => setRegistering(one)}>Register</button>}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {registering && <Register checkpoint={registering} onClose={() => setRegistering(null)} />}
    </Card>
  );
}

function Register({ checkpoint, onClose }: { checkpoint: Checkpoint; onClose: () => void }): VNode {
  const user = useUser();
  const models = useQuery("models", () => get<RegisteredModel[]>("/models"), { subjects: null });
  const own = (models.data ?? []).filter((one) => mayChange(user, one.owner));
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const name = String(form.get("name"));
    const isDone = await act(async () => {
      if (!own.some((one) => one.name === name)) await post("/models", { name });
      await post(`/models/${encodeURIComponent(name)}/versions`, { checkpoint: checkpoint.uuid, notes: String(form.get("notes")) });
    }, `Registered as a version of ${name}.`);
    if (isDone) onClose();
  };
  return (
    <Dialog title="Register as a model version" onClose={onClose}>
      <form onSubmit={submit}>
        <label class="field"><span>Model, existing or new</span><input class="input" name="name" list="models" required autofocus pattern="[A-Za-z0-9][A-Za-z0-9 ._\-]*" /></label>
        <datalist id="models">{own.map((one) => <option key={one.name} value={one.name} />)}</datalist>
        <label class="field"><span>Notes</span><input class="input" name="notes" /></label>
        <div class="dialog-actions"><button class="button primary">Register</button></div>
      </form>
    </Dialog>
  );
}

function History({ trial }: { trial: Trial }): VNode {
  const { data, error, reload } = useQuery(`history ${trial.id}`, () => get<TrialEvent[]>(`/trials/${trial.id}/history`), { subjects: [`metrics:${trial.id}`] });
  if (error) return <Failure error={error} retry={reload} />;
  if (data === null) return <Loading />;
  if (data.length === 0) return <Empty title="Nothing has happened yet" />;
  return (
    <Card title="History">
      <ol class="timeline">
        {data.map((one) => (
          <li key={one.id} class={`event-${one.kind}`}>
            <time title={moment(one.time_s)}>{moment(one.time_s)}</time>
            <span><strong>{one.kind}</strong> <span class="muted">run {one.run}</span> {one.text}</span>
          </li>
        ))}
      </ol>
    </Card>
  );
}
