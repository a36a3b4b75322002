// Logs: any part of a million lines at once, searched and filtered on the server, followed while they grow.
import type { VNode } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get } from "../lib/api";
import { parts } from "../lib/ansi";
import { clock, count, moment } from "../lib/format";
import { useQuery } from "../lib/query";
import { useParam } from "../lib/router";
import type { LogLine, LogOutline } from "../lib/types";
import { Choice, Entry, Failure, Loading, Toggle } from "./bits";

interface Props {
  /** Such as /trials/3. */
  owner: string;
  subjects: readonly string[];
  isLive: boolean;
  ranks: number;
  withTrial?: boolean;
}

const ROW_PX = 20;
const MAX_PX = 8_000_000;
const LEVELS = [["", "any"], ["info", "info"], ["warning", "warning"], ["error", "error"]] as const;

export function LogView({ owner, subjects, isLive, ranks, withTrial = false }: Props): VNode {
  const [text, setText] = useParam("grep");
  const [rank, setRank] = useParam("rank");
  const [level, setLevel] = useParam("level");
  const [isFollowed, setFollowed] = useState(isLive);
  const filter = { text, rank, level };
  const key = `${owner} ${text} ${rank} ${level}`;
  const outline = useQuery(`outline ${key}`, () => get<LogOutline>(`${owner}/logs/outline`, filter), { subjects: isLive ? subjects : null });
  const found = outline.data;
  const list = useRef<HTMLDivElement>(null);

  const jump = (line: number) => {
    setFollowed(false);
    if (list.current && found) list.current.scrollTop = Math.max(0, toPx(line, found.count) - 60);
  };
  return (
    <section class="card logs" aria-label="Log">
      <header class="card-head">
        <div class="log-search" role="search">
          <Entry hint="Search the log" label="Search the log" value={text} onEnter={setText} />
        </div>
        <div class="card-actions">
          {ranks > 1 && (
            <Choice label="Rank" value={rank} options={[["", "all"], ...Array.from({ length: ranks }, (_, at): [string, string] => [String(at), String(at)])]} onChange={setRank} />
          )}
          <Choice label="Level" value={level} options={LEVELS} onChange={setLevel} />
          {found !== null && found.tracebacks.length > 0 && (
            <button class="button small" onClick={() => jump(found.tracebacks.at(-1)!)}>
              Jump to the traceback
            </button>
          )}
          {isLive && <Toggle label="Follow" value={isFollowed} onChange={setFollowed} />}
          <a class="button small" href={`api/v1${owner}/logs?tail=100000`} download={`${owner.slice(1).replace("/", "-")}.json`}>
            Download
          </a>
          <span class="muted small">{found ? count(found.count, "line") : ""}</span>
        </div>
      </header>
      {outline.error && <Failure error={outline.error} retry={outline.reload} />}
      {outline.isLoading && <Loading what="Loading the log" />}
      {found && (
        <Lines key={key} list={list} outline={found} owner={owner} filter={filter} isLive={isLive} isFollowed={isFollowed} onScrolledUp={() => setFollowed(false)} withTrial={withTrial} />
      )}
    </section>
  );
}

interface LinesProps {
  list: { current: HTMLDivElement | null };
  outline: LogOutline;
  owner: string;
  filter: Record<string, string>;
  isLive: boolean;
  isFollowed: boolean;
  onScrolledUp: () => void;
  withTrial: boolean;
}

function Lines({ list, outline, owner, filter, isLive, isFollowed, onScrolledUp, withTrial }: LinesProps): VNode {
  const [view, setView] = useState({ top: 0, height: 600 });
  const [pages, setPages] = useState<ReadonlyMap<number, LogLine[]>>(new Map());
  const asked = useRef(new Map<number, number>());
  const total = outline.count;
  const first = Math.max(0, fromPx(view.top, total) - 10);
  const last = Math.min(total, first + Math.ceil(view.height / ROW_PX) + 20);

  useEffect(() => {
    for (let page = Math.floor(first / outline.step); page <= Math.floor(Math.max(first, last - 1) / outline.step); page += 1) {
      const wanted = Math.min(outline.step, total - page * outline.step);
      const anchor = outline.anchors[page];
      // The last page grows: it is asked for again when it is known to have more lines.
      if (anchor === undefined || (asked.current.get(page) ?? 0) >= wanted) continue;
      asked.current.set(page, wanted);
      void get<LogLine[]>(`${owner}/logs`, { ...filter, cursor: anchor - 1, limit: outline.step }).then(
        (lines) => setPages((old) => keep(old, page, lines)),
        () => asked.current.delete(page),
      );
    }
  }, [first, last, outline]);

  useEffect(() => {
    if (isFollowed && list.current) list.current.scrollTop = list.current.scrollHeight;
  }, [isFollowed, total]);

  const rows = useMemo(() => {
    const found: { at: number; line: LogLine | undefined }[] = [];
    for (let at = first; at < last; at += 1) {
      found.push({ at, line: pages.get(Math.floor(at / outline.step))?.[at % outline.step] });
    }
    return found;
  }, [first, last, pages, outline.step]);

  if (total === 0) return <p class="muted pad">{Object.values(filter).some(Boolean) ? "No line matches." : isLive ? "Nothing has been written yet." : "Nothing was written."}</p>;
  const offset = view.top - (view.top % ROW_PX) - Math.min(10, fromPx(view.top, total)) * ROW_PX;
  return (
    <div
      ref={list}
      class="log-lines"
      role="log"
      aria-label="Lines"
      tabIndex={0}
      onScroll={(event) => {
        const box = event.currentTarget;
        setView({ top: box.scrollTop, height: box.clientHeight });
        if (box.scrollTop + box.clientHeight < box.scrollHeight - 60) onScrolledUp();
      }}
    >
      <div class="log-space" style={{ height: `${Math.min(total * ROW_PX, MAX_PX)}px` }}>
        <div class="log-window" style={{ transform: `translateY(${Math.max(0, offset)}px)` }}>
          {rows.map(({ at, line }) => (
            <div key={at} class={`log-line level-${line?.level ?? "info"}`} data-line={at}>
              <span class="log-meta" title={line ? moment(line.time_s) : ""}>
                {line ? clock(line.time_s) : ""}
              </span>
              <span class="log-meta">{line ? `${withTrial ? `trial ${line.trial_id} ` : ""}${line.rank}` : ""}</span>
              <span class="log-text">{line ? parts(line.text).map((part) => <span class={part.style}>{part.text}</span>) : "…"}</span>
            </div>
          ))}
        </div>
      </div>
    </div>
  );
}

const MAX_PAGES = 20;

function keep(old: ReadonlyMap<number, LogLine[]>, page: number, lines: LogLine[]): Map<number, LogLine[]> {
  const next = new Map(old);
  next.delete(page);
  next.set(page, lines);
  for (const far of next.keys()) {
    if (next.size <= MAX_PAGES) break;
    next.delete(far);
  }
  return next;
}

/** Browsers limit the height of elements: beyond it, a pixel stands for more than a line. */
export function fromPx(px: number, total: number): number {
  const height = total * ROW_PX;
  return Math.floor(height <= MAX_PX ? px / ROW_PX : (px / MAX_PX) * total);
}

export function toPx(line: number, total: number): number {
  return total * ROW_PX <= MAX_PX ? line * ROW_PX : (line / total) * MAX_PX;
}
