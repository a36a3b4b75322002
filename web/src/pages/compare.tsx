// Up to fifty trials of any experiments over each other, and what differs between them.
import type { VNode } from "preact";
import { useMemo, useState } from "preact/hooks";
import { ApiError, get } from "../lib/api";
import { download, exact, toCsv } from "../lib/csv";
import { differing, flatten } from "../lib/flatten";
import { apart } from "../lib/format";
import { useQuery } from "../lib/query";
import { href, useParam } from "../lib/router";
import type { Trial } from "../lib/types";
import { Card, Empty, Failure, Loading } from "../ui/bits";
import { Curves } from "../ui/curves";

const MAX_TRIALS = 50;

export function ComparePage(): VNode {
  const [text, setText] = useParam("trials");
  const ids = useMemo(() => [...new Set(text.split(",").filter((one) => /^\d+$/.test(one)).map(Number))].slice(0, MAX_TRIALS), [text]);
  const { data, error, reload } = useQuery(`compare ${text}`, () => Promise.all(ids.map(findTrial)), { subjects: ids.map((id) => `metrics:${id}`), isEnabled: ids.length > 0 });
  const trials = useMemo(() => (data ?? []).filter((one) => one !== null), [data]);
  const missing = ids.filter((id) => data && !trials.some((one) => one.id === id));
  const [only, setOnly] = useState<Set<number> | null>(null);
  const labelOf = useMemo(() => {
    const known = new Map(trials.map((trial) => [trial.id, trial]));
    return (id: number) => `trial ${id} (experiment ${known.get(id)?.experiment_id ?? "?"})`;
  }, [data]);
  const add = (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const more = String(new FormData(form).get("trials")).split(/[\s,]+/).filter((one) => /^\d+$/.test(one));
    form.reset();
    setText([...new Set([...ids.map(String), ...more])].slice(0, MAX_TRIALS).join(","));
  };
  return (
    <>
      <header class="page-head">
        <h1>Compare</h1>
        <form class="toolbar" onSubmit={add}>
          <input class="input short" name="trials" aria-label="Ids of trials to add" placeholder="trial ids" required />
          <button class="button">Add</button>
        </form>
      </header>
      {ids.length === 0 && <Empty title="Choose what to compare"><p>Select experiments or trials in a table, or enter ids of trials above.</p></Empty>}
      {error && <Failure error={error} retry={reload} />}
      {ids.length > 0 && data === null && !error && <Loading />}
      {missing.length > 0 && <div class="banner">Not there, or deleted: {missing.map((id) => `trial ${id}`).join(", ")}.</div>}
      {trials.length > 0 && (
        <>
          <Curves trialIds={trials.map((one) => one.id)} labelOf={labelOf} subjects={trials.map((one) => `metrics:${one.id}`)} only={only} onOnly={setOnly} />
          <Differences trials={trials} onRemove={(id) => setText(ids.filter((one) => one !== id).join(","))} />
        </>
      )}
    </>
  );
}

/** The trial; null if there is none of this id. */
async function findTrial(id: number): Promise<Trial | null> {
  try {
    return await get<Trial>(`/trials/${id}`);
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
}

function Differences({ trials, onRemove }: { trials: readonly Trial[]; onRemove: (id: number) => void }): VNode {
  const flat = trials.map((trial) => flatten(trial.hparams));
  const names = differing(flat);
  const exportCsv = () => {
    const head = ["trial", "experiment", "state", "batches", "best metric", ...names];
    const rows = trials.map((trial, at) => [trial.id, trial.experiment_id, trial.state, trial.batches, trial.best_metric, ...names.map((name) => exact(flat[at]!.get(name)))]);
    download("comparison.csv", toCsv([head, ...rows]), "text/csv");
  };
  return (
    <Card title="What differs" actions={<button class="button small" onClick={exportCsv}>Export CSV</button>}>
      <div class="scroll-x">
        <table class="plain-table" aria-label="Differing hyperparameters">
          <thead>
            <tr>
              <th scope="col">Hyperparameter</th>
              {trials.map((trial) => (
                <th key={trial.id} scope="col">
                  <a href={href(["trials", trial.id])}>trial {trial.id}</a>{" "}
                  <button class="link" aria-label={`Remove trial ${trial.id}`} onClick={() => onRemove(trial.id)}>✕</button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            <tr><th scope="row">experiment</th>{trials.map((trial) => <td key={trial.id}><a href={href(["experiments", trial.experiment_id])}>{trial.experiment_id}</a></td>)}</tr>
            <tr><th scope="row">best metric</th>{apart(trials.map((trial) => trial.best_metric ?? undefined)).map((text, at) => <td key={at} class="num">{text}</td>)}</tr>
            {names.map((name) => (
              <tr key={name}><th scope="row"><code>{name}</code></th>{apart(flat.map((one) => one.get(name))).map((text, at) => <td key={at}>{text}</td>)}</tr>
            ))}
          </tbody>
        </table>
      </div>
      {names.length === 0 && <p class="muted">All hyperparameters are the same.</p>}
    </Card>
  );
}
