// All experiments: live, searched by anything, sorted, with columns and views of the reader's choice, and acted upon.
import type { VNode } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, getPage, patch, post, remove } from "../lib/api";
import { ago, count, duration, moment, number, short, span, value } from "../lib/format";
import { fieldOf, matches, parseSearch } from "../lib/filter";
import { flatten } from "../lib/flatten";
import { onChange } from "../lib/live";
import { Runner, setOutdated } from "../lib/query";
import { go, href, useParam } from "../lib/router";
import { useNow, useSaved } from "../lib/saved";
import { ENDED, type Experiment } from "../lib/types";
import { mayChange, useUser } from "../lib/user";
import { Badge, Command, Dialog, Empty, Failure, Loading, Progress, Sparkline, Toggle } from "../ui/bits";
import { actOnEach, type Bulk } from "../ui/bulk";
import { Table, type Column, type Sorting } from "../ui/table";

const PAGE = 1000;
const DEFAULT_COLUMNS = ["id", "name", "state", "progress", "best", "curve", "trials", "duration", "owner", "labels", "created"];

export function Experiments(): VNode {
  const { rows, error, isComplete, reload } = useExperiments();
  const [text, setText] = useParam("q");
  const [withArchived, setWithArchived] = useParam("archived");
  const [sort, setSort] = useParam("sort");
  const [chosen, setChosen] = useSaved<string[]>("columns", DEFAULT_COLUMNS);
  const [selected, setSelected] = useState<Set<number>>(new Set());
  const [isChoosing, setChoosing] = useState(false);
  const search = useMemo(() => parseSearch(text), [text]);
  const shown = useMemo(
    () => (rows ?? []).filter((one) => (withArchived || !one.is_archived) && matches(one, search)),
    [rows, search, withArchived],
  );
  const chosenRows = useMemo(() => shown.filter((one) => selected.has(one.id)), [shown, selected]);
  const isAnyActive = useMemo(() => shown.some((one) => !ENDED.includes(one.state)), [shown]);
  const now = useNow(isAnyActive);
  const { curves, onView } = useSparklines();
  const hparams = useMemo(() => [...new Set((rows ?? []).slice(0, 300).flatMap((one) => [...flatten(one.best_hparams).keys()]))], [rows]);
  const columns = useMemo(() => columnsOf(chosen, { now, curves }), [chosen, now, curves]);
  const sorting: Sorting | null = sort ? { id: sort.replace(/^-/, ""), isDown: sort.startsWith("-") } : null;

  if (error && rows === null) return <Failure error={error} retry={reload} />;
  if (rows === null) return <Loading what="Loading the experiments" />;
  if (rows.length === 0) return <NoExperiments />;
  return (
    <>
      <header class="page-head">
        <h1>Experiments</h1>
        <span class="muted">{count(shown.length, "experiment")}{isComplete ? "" : " so far"}</span>
      </header>
      <div class="toolbar">
        <input
          class="input grow"
          type="search"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
          placeholder="Search: words, state:running, lr<0.01, best<0.3, owner:ann"
          aria-label="Search experiments"
        />
        <Toggle label="Archived" value={withArchived !== ""} onChange={(isOn) => setWithArchived(isOn ? "1" : "")} />
        <Views text={text} sort={sort} onOpen={(view) => { setText(view.text); setSort(view.sort); }} />
        <button class="button" onClick={() => setChoosing(true)}>Columns</button>
      </div>
      {selected.size > 0 && <Actions rows={chosenRows} numHidden={selected.size - chosenRows.length} onDone={() => setSelected(new Set())} />}
      {shown.length === 0 ? (
        <Empty title="No experiment matches">
          <p>Shorten the search, or include archived experiments.</p>
        </Empty>
      ) : (
        <Table
          label="Experiments"
          rows={shown}
          columns={columns}
          rowKey={(row) => row.id}
          sorting={sorting}
          onSort={(next) => setSort(next ? `${next.isDown ? "-" : ""}${next.id}` : "")}
          selected={selected}
          onSelect={setSelected}
          onOpen={(row) => go(href(["experiments", row.id]))}
          onView={onView}
          maxHeight="calc(100vh - 190px)"
        />
      )}
      {isChoosing && <ColumnChoice chosen={chosen} hparams={hparams} onChoose={setChosen} onClose={() => setChoosing(false)} />}
    </>
  );
}

let early: ReturnType<typeof newest> | null = null;

function newest(): Promise<{ items: Experiment[]; next: string | null }> {
  return getPage<Experiment>("/experiments", { limit: 100 });
}

/** Asks for the newest experiments before the page is drawn. What fails here is asked again, and told, by the page. */
export function preloadExperiments(): void {
  early = newest();
  early.catch(() => (early = null));
}

/** All experiments, the newest pages first; after a change only the first page and what has not ended is fetched again. */
function useExperiments(): { rows: Experiment[] | null; error: Error | null; isComplete: boolean; reload: () => void } {
  const [state, setState] = useState<{ rows: Experiment[] | null; error: Error | null; isComplete: boolean }>({ rows: null, error: null, isComplete: false });
  const known = useRef(new Map<number, Experiment>());
  const runner = useRef<Runner | null>(null);
  useEffect(() => {
    let isGone = false;
    let isComplete = false;
    const publish = () => {
      if (isGone) return;
      setState({ rows: [...known.current.values()].sort((a, b) => b.id - a.id), error: null, isComplete });
      setOutdated(known, null);
    };
    const load = async () => {
      try {
        let cursor: string | null = null;
        let isFirst = true;
        do {
          const asked: ReturnType<typeof newest> = isFirst ? (early ?? newest()) : getPage<Experiment>("/experiments", { limit: PAGE, cursor });
          early = null;
          const page = await asked;
          const [youngest, oldest] = [page.items[0]?.id ?? 0, page.items.at(-1)?.id ?? 0];
          for (const id of known.current.keys()) {
            // What is missing between the rows of a page was deleted.
            if (id >= (page.next ? oldest : 0) && (isFirst || id <= youngest)) known.current.delete(id);
          }
          for (const one of page.items) known.current.set(one.id, one);
          cursor = page.next;
          isComplete = cursor === null || isComplete;
          if (isFirst) publish();
          isFirst = false;
        } while (cursor !== null && !isGone && needsOlder(known.current, cursor, isComplete));
        publish();
      } catch (error) {
        if (isGone) return;
        setState((old) => ({ ...old, error: error as Error }));
        setOutdated(known, known.current.size > 0 ? (error as Error) : null);
      }
    };
    runner.current = new Runner(load);
    runner.current.request();
    const unsubscribe = onChange(["experiment:"], () => runner.current?.request());
    return () => {
      isGone = true;
      setOutdated(known, null);
      runner.current?.stop();
      unsubscribe();
    };
  }, []);
  return { ...state, reload: () => runner.current?.request() };
}

function needsOlder(known: ReadonlyMap<number, Experiment>, cursor: string, isComplete: boolean): boolean {
  if (!isComplete) return true;
  const oldest = Number(cursor);
  for (const one of known.values()) if (one.id < oldest && !ENDED.includes(one.state)) return true;
  return false;
}

/** Curves of the rows on the screen. Which those are is no state of the page: it would be drawn again with every scroll. */
function useSparklines(): { curves: ReadonlyMap<number, number[]>; onView: (rows: readonly Experiment[]) => void } {
  const [curves, setCurves] = useState<ReadonlyMap<number, number[]>>(new Map());
  const seen = useRef(new Map<number, string>());
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  const ask = (visible: readonly Experiment[]) => {
    const missing = visible.filter((one) => one.best_trial !== null && seen.current.get(one.id) !== `${one.best_trial} ${one.progress.toFixed(2)}`);
    if (missing.length === 0) return;
    for (const one of missing) seen.current.set(one.id, `${one.best_trial} ${one.progress.toFixed(2)}`);
    get<{ experiment_id: number; values: number[] }[]>("/sparklines", { experiments: missing.map((one) => one.id).join(",") }).then(
      (found) => setCurves((old) => new Map([...old, ...found.map((one): [number, number[]] => [one.experiment_id, one.values])])),
      () => missing.forEach((one) => seen.current.delete(one.id)),
    );
  };
  const onView = (rows: readonly Experiment[]) => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => ask(rows), 120);
  };
  return { curves, onView };
}

function columnsOf(chosen: readonly string[], { now, curves }: { now: number; curves: ReadonlyMap<number, number[]> }): Column<Experiment>[] {
  const known: Record<string, Column<Experiment>> = {
    id: { id: "id", title: "ID", width: "48px", isNumber: true, sort: (row) => row.id, cell: (row) => row.id },
    name: {
      id: "name", title: "Name", width: "minmax(130px, 2fr)", sort: (row) => row.name,
      cell: (row) => <a class="strong" href={href(["experiments", row.id])} title={row.description || row.name}>{row.name}</a>,
    },
    state: { id: "state", title: "State", width: "104px", sort: (row) => row.state, cell: (row) => <Badge state={row.state} /> },
    progress: { id: "progress", title: "Progress", width: "120px", sort: (row) => row.progress, cell: (row) => <Progress value={row.progress} state={row.state} /> },
    best: { id: "best", title: "Best", width: "84px", isNumber: true, sort: (row) => row.best_metric, cell: (row) => <span title={row.metric}>{number(row.best_metric)}</span> },
    metric: { id: "metric", title: "Metric", sort: (row) => row.metric, cell: (row) => row.metric },
    curve: { id: "curve", title: "Curve", width: "84px", cell: (row) => <Sparkline values={curves.get(row.id) ?? []} /> },
    trials: { id: "trials", title: "Trials", width: "52px", isNumber: true, sort: (row) => row.num_trials, cell: (row) => row.num_trials },
    searcher: { id: "searcher", title: "Searcher", sort: (row) => row.searcher, cell: (row) => row.searcher },
    duration: {
      id: "duration", title: "Duration", width: "96px", isNumber: true, sort: (row) => span(row.started_s, row.ended_s, now),
      cell: (row) => duration(span(row.started_s, row.ended_s, now)),
    },
    owner: { id: "owner", title: "Owner", width: "72px", sort: (row) => row.owner, cell: (row) => row.owner },
    labels: { id: "labels", title: "Labels", width: "minmax(90px, 1fr)", cell: (row) => row.labels.map((label) => <span key={label} class="tag">{label}</span>) },
    created: { id: "created", title: "Created", width: "84px", sort: (row) => row.created_s, cell: (row) => <time title={moment(row.created_s)}>{ago(row.created_s, now)}</time> },
  };
  return chosen.map(
    (id) => known[id] ?? { id, title: id, isNumber: true, sort: (row) => (fieldOf(row, id) ?? null) as number | string | null, cell: (row) => <span title={value(fieldOf(row, id))}>{short(fieldOf(row, id))}</span> },
  );
}

interface Verb extends Bulk<Experiment> {
  title: string;
  isDanger?: boolean;
  /** Asked before it is done, about these experiments. */
  question?: { title: string; text: string };
}

const isEnded = (one: Experiment) => ENDED.includes(one.state);
const COMMON = { noun: "experiment", nameOf: (one: Experiment) => `${one.id} ${one.name} (${one.state})` };
const VERBS: readonly Verb[] = [
  { ...COMMON, title: "Pause", done: "paused", appliesTo: (one) => !isEnded(one) && one.state !== "paused", work: (one) => post(`/experiments/${one.id}/pause`) },
  { ...COMMON, title: "Resume", done: "resumed", appliesTo: (one) => one.state === "paused", work: (one) => post(`/experiments/${one.id}/activate`) },
  {
    ...COMMON, title: "Kill", done: "ended", appliesTo: (one) => !isEnded(one), work: (one) => post(`/experiments/${one.id}/kill`),
    isDanger: true, question: { title: "Kill?", text: "All trials of these experiments will be ended." },
  },
  { ...COMMON, title: "Archive", done: "archived", appliesTo: (one) => isEnded(one) && !one.is_archived, work: (one) => patch(`/experiments/${one.id}`, { is_archived: true }) },
  { ...COMMON, title: "Unarchive", done: "unarchived", appliesTo: (one) => one.is_archived, work: (one) => patch(`/experiments/${one.id}`, { is_archived: false }) },
  {
    ...COMMON, title: "Delete", done: "deleted", appliesTo: isEnded, work: (one) => remove(`/experiments/${one.id}`),
    isDanger: true, question: { title: "Delete for good?", text: "All metrics, logs and checkpoints of these experiments will be deleted. This cannot be undone." },
  },
];

/** What can be done with the selected rows that are shown; `numHidden` more are selected. */
function Actions({ rows, numHidden, onDone }: { rows: Experiment[]; numHidden: number; onDone: () => void }): VNode {
  const user = useUser();
  const [asked, setAsked] = useState<Verb | null>(null);
  const mine = (verb: Verb): Verb => ({ ...verb, appliesTo: (one) => mayChange(user, one.owner) && verb.appliesTo(one) });
  const verbs = VERBS.map(mine).filter((verb) => rows.some(verb.appliesTo));
  const perform = (verb: Verb) => {
    setAsked(null);
    void actOnEach(rows, verb).then((isDone) => isDone && onDone());
  };
  const trials = rows.map((one) => one.best_trial).filter((one) => one !== null);
  return (
    <div class="selection" role="region" aria-label="Selected experiments">
      <strong>{rows.length} selected{numHidden > 0 ? `, ${numHidden} more hidden by the search` : ""}</strong>
      <button class="button small" disabled={trials.length < 2} onClick={() => go(href(["compare"], { trials: trials.join(",") }))}>Compare best trials</button>
      {verbs.map((verb) => (
        <button key={verb.title} class={`button small${verb.isDanger ? " danger" : ""}`} onClick={() => (verb.question ? setAsked(verb) : perform(verb))}>{verb.title}</button>
      ))}
      <button class="button small ghost" onClick={onDone}>Clear</button>
      {asked?.question && (
        <Dialog title={asked.question.title} onClose={() => setAsked(null)}>
          <p>{asked.question.text}</p>
          <ul class="named">{rows.filter(asked.appliesTo).map((one) => <li key={one.id}>{one.id} {one.name}</li>)}</ul>
          <div class="dialog-actions">
            <button class="button danger" onClick={() => perform(asked)}>{asked.title}</button>
          </div>
        </Dialog>
      )}
    </div>
  );
}

interface View {
  name: string;
  text: string;
  sort: string;
}

function Views({ text, sort, onOpen }: { text: string; sort: string; onOpen: (view: View) => void }): VNode {
  const [views, setViews] = useSaved<View[]>("views", []);
  const [isNaming, setNaming] = useState(false);
  return (
    <>
      <label class="choice">
        <span>View</span>
        <select
          value=""
          onChange={(event) => {
            const id = event.currentTarget.value;
            event.currentTarget.value = "";
            if (id === "+") setNaming(true);
            else if (id === "-") setViews(views.filter((one) => one.text !== text || one.sort !== sort));
            else {
              const view = views[Number(id)];
              if (view) onOpen(view);
            }
          }}
        >
          <option value="">choose …</option>
          {views.map((one, at) => <option key={one.name} value={at}>{one.name}</option>)}
          <option value="+">Save this search …</option>
          {views.some((one) => one.text === text && one.sort === sort) && <option value="-">Forget this view</option>}
        </select>
      </label>
      {isNaming && (
        <Dialog title="Save this search" onClose={() => setNaming(false)}>
          <form
            onSubmit={(event) => {
              event.preventDefault();
              const name = String(new FormData(event.currentTarget).get("name"));
              setViews([...views.filter((one) => one.name !== name), { name, text, sort }]);
              setNaming(false);
            }}
          >
            <label class="field"><span>Name</span><input class="input" name="name" required autofocus /></label>
            <div class="dialog-actions"><button class="button primary">Save</button></div>
          </form>
        </Dialog>
      )}
    </>
  );
}

function ColumnChoice({ chosen, hparams, onChoose, onClose }: { chosen: string[]; hparams: string[]; onChoose: (columns: string[]) => void; onClose: () => void }): VNode {
  const all = [...new Set([...DEFAULT_COLUMNS, "metric", "searcher", ...hparams])];
  const toggle = (id: string) => onChoose(chosen.includes(id) ? chosen.filter((one) => one !== id) : [...chosen, id]);
  return (
    <Dialog title="Columns" onClose={onClose}>
      <div class="column-choice">
        {all.map((id) => <Toggle key={id} label={id} value={chosen.includes(id)} onChange={() => toggle(id)} />)}
      </div>
      <div class="dialog-actions"><button class="button" onClick={() => onChoose(DEFAULT_COLUMNS)}>Reset</button></div>
    </Dialog>
  );
}

function NoExperiments(): VNode {
  return (
    <>
      <header class="page-head"><h1>Experiments</h1></header>
      <Empty title="No experiments yet">
        <p>Create one from a config and a model folder; it appears here while it trains.</p>
        <Command text="trek experiment create const.yaml . --web" />
        <p class="muted">Or try the example in the source tree:</p>
        <Command text="make demo" />
      </Empty>
    </>
  );
}
