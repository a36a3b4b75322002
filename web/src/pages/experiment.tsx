// One experiment: curves, trials, hyperparameters, search, config, code, logs, notes, and what can be done with it.
import type { VNode } from "preact";
import { useMemo, useState } from "preact/hooks";
import { get, patch, post, remove } from "../lib/api";
import { ago, apart, count, duration, moment, number, span, value } from "../lib/format";
import { flatten } from "../lib/flatten";
import { useQuery } from "../lib/query";
import { go, href, useParam } from "../lib/router";
import { useNow } from "../lib/saved";
import { ENDED, type ExperimentDetails, type Trial } from "../lib/types";
import { mayChange, mayCreate, useUser } from "../lib/user";
import { act, Badge, Card, Dialog, Empty, Fact, Failure, Loading, Progress, Tabs } from "../ui/bits";
import { actOnEach, type Bulk } from "../ui/bulk";
import { CodeBrowser } from "../ui/code-browser";
import { ConfigView } from "../ui/config-view";
import { Curves } from "../ui/curves";
import { Fork } from "../ui/fork";
import { HparamViews, varying } from "../ui/hparam-views";
import { LogView } from "../ui/log-view";
import { Markdown } from "../ui/markdown";
import { SearchView } from "../ui/search-view";
import { Table, type Column, type Sorting } from "../ui/table";

export function ExperimentPage({ id }: { id: number }): VNode {
  const subjects = [`experiment:${id}`];
  const { data: details, error, reload } = useQuery(`experiment ${id}`, () => get<ExperimentDetails>(`/experiments/${id}`), { subjects });
  const [tab, setTab] = useParam("tab", "overview");
  const user = useUser();
  if (error && details === null) return <Failure error={error} retry={reload} />;
  if (details === null) return <Loading what="Loading the experiment" />;
  const isLive = !ENDED.includes(details.state);
  const tabs = [
    { id: "overview", title: "Overview" },
    { id: "trials", title: "Trials", count: details.trials.length },
    { id: "hparams", title: "Hyperparameters" },
    { id: "search", title: "Search" },
    { id: "logs", title: "Logs" },
    { id: "config", title: "Config" },
    ...(mayCreate(user) ? [{ id: "code", title: "Code" }] : []),
    { id: "notes", title: "Notes" },
  ];
  return (
    <>
      <Head details={details} reload={reload} />
      <Tabs tabs={tabs} chosen={tab} onChoose={setTab} />
      {tab === "overview" && <Overview details={details} isLive={isLive} />}
      {tab === "trials" && <Trials details={details} />}
      {tab === "hparams" && <HparamViews details={details} />}
      {tab === "search" && <SearchView details={details} />}
      {tab === "logs" && (
        <LogView owner={`/experiments/${id}`} subjects={["logs:"]} isLive={isLive} ranks={Math.max(1, ...details.trials.map((one) => one.slots))} withTrial />
      )}
      {tab === "config" && <ConfigView config={details.config} provenance={details.provenance} />}
      {tab === "code" && mayCreate(user) && <CodeBrowser experimentId={id} />}
      {tab === "notes" && <Notes details={details} reload={reload} />}
    </>
  );
}

function Head({ details, reload }: { details: ExperimentDetails; reload: () => void }): VNode {
  const user = useUser();
  const [dialog, setDialog] = useState<"kill" | "delete" | "fork" | null>(null);
  const isOwn = mayChange(user, details.owner);
  const isEnded = ENDED.includes(details.state);
  const send = (verb: string, done: string) => act(() => post(`/experiments/${details.id}/${verb}`), done).then(reload);
  return (
    <header class="page-head">
      <nav class="crumbs" aria-label="Breadcrumb"><a href={href(["experiments"])}>Experiments</a></nav>
      <div class="title-row">
        <h1><span class="muted">{details.id}</span> {details.name}</h1>
        <Badge state={details.state} />
        <div class="actions">
          {isOwn && !isEnded && details.state !== "paused" && <button class="button" onClick={() => send("pause", "Pausing: running trials save first.")}>Pause</button>}
          {isOwn && details.state === "paused" && <button class="button primary" onClick={() => send("activate", "Resumed.")}>Resume</button>}
          {isOwn && !isEnded && <button class="button danger" onClick={() => setDialog("kill")}>Kill</button>}
          {mayCreate(user) && <button class="button" onClick={() => setDialog("fork")}>Fork</button>}
          {isOwn && isEnded && <button class="button" onClick={() => act(() => patch(`/experiments/${details.id}`, { is_archived: !details.is_archived })).then(reload)}>{details.is_archived ? "Unarchive" : "Archive"}</button>}
          {isOwn && isEnded && <button class="button danger" onClick={() => setDialog("delete")}>Delete</button>}
        </div>
      </div>
      {details.labels.length > 0 && <div>{details.labels.map((label) => <span key={label} class="tag">{label}</span>)}</div>}
      {details.error && <div class="failure" role="alert"><strong>Error:</strong> {details.error}</div>}
      {details.warnings.map((warning) => <div key={warning} class="banner">{warning}</div>)}
      {dialog === "fork" && <Fork details={details} onClose={() => setDialog(null)} />}
      {(dialog === "kill" || dialog === "delete") && (
        <Dialog title={dialog === "kill" ? "Kill this experiment?" : "Delete for good?"} onClose={() => setDialog(null)}>
          <p>{dialog === "kill" ? "All its trials will be ended. It can be forked, but not resumed." : "All metrics, logs and checkpoints will be deleted. This cannot be undone."}</p>
          <div class="dialog-actions">
            <button
              class="button danger"
              onClick={() => {
                setDialog(null);
                if (dialog === "kill") void send("kill", "Ending all trials.");
                else void act(() => remove(`/experiments/${details.id}`), "Deleted.").then((isDone) => isDone && go("#/experiments"));
              }}
            >
              {dialog === "kill" ? "Kill" : "Delete"}
            </button>
          </div>
        </Dialog>
      )}
    </header>
  );
}

function Overview({ details, isLive }: { details: ExperimentDetails; isLive: boolean }): VNode {
  const [only, setOnly] = useState<Set<number> | null>(null);
  const now = useNow(isLive);
  const labels = useMemo(() => labelsOf(details.trials), [details.trials]);
  const labelOf = useMemo(() => (trial: number) => labels.get(trial) ?? `trial ${trial}`, [labels]);
  const best = details.trials.find((one) => one.id === details.best_trial);
  return (
    <>
      <dl class="facts">
        <Fact label="Progress"><Progress value={details.progress} state={details.state} /></Fact>
        <Fact label={`Best ${details.metric}`}><span class="figure">{number(details.best_metric)}</span></Fact>
        <Fact label="Best trial">{best ? <a href={href(["trials", best.id])}>trial {best.id}</a> : "–"}</Fact>
        <Fact label="Trials">{trialStates(details.trials)}</Fact>
        <Fact label="Duration">{duration(span(details.started_s, details.ended_s, now))}</Fact>
        <Fact label="Searcher">{details.searcher}</Fact>
        <Fact label="Owner">{details.owner || "–"}</Fact>
        <Fact label="Created"><time title={moment(details.created_s)}>{ago(details.created_s, now)}</time></Fact>
        {details.parent !== null && <Fact label="Forked from"><a href={href(["experiments", details.parent])}>experiment {details.parent}</a></Fact>}
      </dl>
      {details.trials.length === 0 ? (
        <Empty title="No trials yet"><p>The searcher makes the first trials when slots are free. See the <a href="#/cluster">cluster</a>.</p></Empty>
      ) : (
        <Curves experimentId={details.id} numTrials={details.trials.length} metric={details.metric} labelOf={labelOf} subjects={[`experiment:${details.id}`]} only={only} onOnly={setOnly} isLive={isLive} />
      )}
      {best && (
        <Card title="Best trial" actions={<a class="button small" href={href(["trials", best.id])}>Open trial {best.id}</a>}>
          <dl class="facts plain">
            {[...flatten(best.hparams)].map(([name, one]) => <Fact key={name} label={name}>{value(one)}</Fact>)}
          </dl>
        </Card>
      )}
    </>
  );
}

/** Trials by what tells them apart. */
export function labelsOf(trials: readonly Trial[]): Map<number, string> {
  const rows = trials.map((trial) => ({ trial, values: flatten(trial.hparams) }));
  const names = varying(rows).slice(0, 3);
  const texts = names.map((name) => apart(rows.map(({ values }) => values.get(name))));
  return new Map(
    trials.map((trial, row) => {
      const told = names.map((name, at) => `${name.split(".").at(-1)} ${texts[at]![row]}`).join(", ");
      return [trial.id, told ? `trial ${trial.id}: ${told}` : `trial ${trial.id}`];
    }),
  );
}

function trialStates(trials: readonly Trial[]): string {
  const counts = new Map<string, number>();
  for (const one of trials) counts.set(one.state, (counts.get(one.state) ?? 0) + 1);
  return [...counts].map(([state, amount]) => `${amount} ${state}`).join(", ") || "none";
}

const KILL: Bulk<Trial> = {
  noun: "trial",
  done: "ended",
  appliesTo: (one) => !ENDED.includes(one.state),
  work: (one) => post(`/trials/${one.id}/kill`),
  nameOf: (one) => `trial ${one.id} (${one.state})`,
};

function Trials({ details }: { details: ExperimentDetails }): VNode {
  const [sorting, setSorting] = useState<Sorting | null>({ id: "best", isDown: !details.smaller_is_better });
  const [selected, setSelected] = useState<Set<number>>(new Set());
  const user = useUser();
  const now = useNow(!ENDED.includes(details.state));
  const columns = useMemo(() => {
    const rows = details.trials.map((trial) => ({ trial, values: flatten(trial.hparams) }));
    const names = varying(rows).slice(0, 8);
    const own: Column<Trial>[] = [
      { id: "id", title: "Trial", width: "80px", isNumber: true, sort: (row) => row.id, cell: (row) => <a href={href(["trials", row.id])}>{row.id}{row.id === details.best_trial ? " ★" : ""}</a> },
      { id: "state", title: "State", width: "120px", sort: (row) => row.state, cell: (row) => <Badge state={row.state} /> },
      { id: "progress", title: "Progress", width: "140px", sort: (row) => row.progress, cell: (row) => <Progress value={row.progress} state={row.state} /> },
      { id: "best", title: details.metric, width: "130px", isNumber: true, sort: (row) => row.best_metric, cell: (row) => number(row.best_metric) },
      { id: "batches", title: "Batches", width: "90px", isNumber: true, sort: (row) => row.batches, cell: (row) => number(row.batches) },
      { id: "restarts", title: "Restarts", width: "84px", isNumber: true, sort: (row) => row.restarts, cell: (row) => row.restarts },
      { id: "duration", title: "Duration", width: "110px", isNumber: true, sort: (row) => span(row.started_s, row.ended_s, now), cell: (row) => duration(span(row.started_s, row.ended_s, now)) },
    ];
    const params = names.map((name): Column<Trial> => {
      const texts = apart(rows.map(({ values }) => values.get(name)));
      const shown = new Map(rows.map(({ trial, values }, at) => [trial.id, <span title={value(values.get(name))}>{texts[at]}</span>]));
      return {
        id: name, title: name, isNumber: true,
        sort: (row) => (flatten(row.hparams).get(name) ?? null) as number | string | null,
        cell: (row) => shown.get(row.id) ?? "",
      };
    });
    const note: Column<Trial> = { id: "note", title: "Note", width: "minmax(120px, 2fr)", cell: (row) => <span title={row.error || row.waiting}>{row.error.split("\n")[0] || row.waiting}</span> };
    return [...own, ...params, note];
  }, [details, now]);
  const chosen = details.trials.filter((one) => selected.has(one.id));
  return (
    <Card
      title={count(details.trials.length, "trial")}
      actions={
        selected.size > 0 && (
          <>
            <button class="button small" disabled={selected.size < 2 || selected.size > 50} onClick={() => go(href(["compare"], { trials: [...selected].join(",") }))}>Compare {selected.size}</button>
            {mayChange(user, details.owner) && chosen.some((one) => !ENDED.includes(one.state)) && (
              <button class="button small danger" onClick={() => actOnEach(chosen, KILL)}>Kill</button>
            )}
          </>
        )
      }
    >
      {details.trials.length === 0 ? <Empty title="No trials yet" /> : (
        <Table label="Trials" rows={details.trials} columns={columns} rowKey={(row) => row.id} sorting={sorting} onSort={setSorting} selected={selected} onSelect={setSelected} onOpen={(row) => go(href(["trials", row.id]))} maxHeight="calc(100vh - 320px)" />
      )}
    </Card>
  );
}

function Notes({ details, reload }: { details: ExperimentDetails; reload: () => void }): VNode {
  const user = useUser();
  const [draft, setDraft] = useState<string | null>(null);
  const isOwn = mayChange(user, details.owner);
  const saveNotes = () => act(() => patch(`/experiments/${details.id}`, { description: draft }), "Saved.").then((isDone) => {
    if (isDone) {
      setDraft(null);
      reload();
    }
  });
  return (
    <Card title="Notes" actions={isOwn && draft === null && <button class="button small" onClick={() => setDraft(details.description)}>Edit</button>}>
      {draft === null ? (
        details.description ? <Markdown text={details.description} /> : <p class="muted">No notes. {isOwn ? "Write down what this experiment is for." : ""}</p>
      ) : (
        <div class="columns">
          <div>
            <textarea class="input notes" aria-label="Notes in Markdown" value={draft} onInput={(event) => setDraft(event.currentTarget.value)} />
            <div class="dialog-actions">
              <button class="button" onClick={() => setDraft(null)}>Cancel</button>
              <button class="button primary" onClick={saveNotes}>Save</button>
            </div>
          </div>
          <div aria-label="Preview"><Markdown text={draft} /></div>
        </div>
      )}
    </Card>
  );
}
