// Tables: sorted by a click, and drawn only where the reader looks, so that ten thousand rows scroll smoothly.
import type { ComponentChildren, VNode } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

export interface Column<T> {
  id: string;
  title: string;
  cell: (row: T) => ComponentChildren;
  /** What to sort by; a column without it is not sorted. */
  sort?: (row: T) => number | string | null;
  width?: string;
  isNumber?: boolean;
}

export interface Sorting {
  id: string;
  isDown: boolean;
}

interface Props<T> {
  label: string;
  rows: readonly T[];
  columns: readonly Column<T>[];
  rowKey: (row: T) => number | string;
  sorting?: Sorting | null;
  onSort?: (sorting: Sorting | null) => void;
  selected?: ReadonlySet<number>;
  onSelect?: (selected: Set<number>) => void;
  onOpen?: (row: T) => void;
  rowHeight?: number;
  maxHeight?: string;
  /** Told which rows are on the screen. */
  onView?: (rows: readonly T[]) => void;
}

const EXTRA_ROWS = 12;

export function Table<T>(props: Props<T>): VNode {
  const { rows, columns, rowKey, rowHeight = 40, selected, onSelect } = props;
  const body = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 800 });
  const sorted = useMemo(() => sortRows(rows, columns, props.sorting ?? null), [rows, columns, props.sorting]);

  useEffect(() => {
    const element = body.current!;
    const update = () => setView({ top: element.scrollTop, height: element.clientHeight });
    update();
    element.addEventListener("scroll", update, { passive: true });
    const observer = new ResizeObserver(update);
    observer.observe(element);
    return () => {
      element.removeEventListener("scroll", update);
      observer.disconnect();
    };
  }, []);

  const first = Math.max(0, Math.floor(view.top / rowHeight) - EXTRA_ROWS);
  const last = Math.min(sorted.length, Math.ceil((view.top + view.height) / rowHeight) + EXTRA_ROWS);
  const shown = sorted.slice(first, last);
  const { onView } = props;
  useEffect(() => onView?.(shown), [first, last, sorted]);

  const least = columns.reduce((sum, one) => sum + Number(/\d+/.exec(one.width ?? "90")![0]) + 8, (selected ? 32 : 0) + 32);
  const template = `${selected ? "24px " : ""}${columns.map((one) => one.width ?? "minmax(90px, 1fr)").join(" ")}`;
  const isAll = selected !== undefined && sorted.length > 0 && sorted.every((row) => selected.has(Number(rowKey(row))));
  const toggle = (key: number) => {
    const next = new Set(selected);
    if (!next.delete(key)) next.add(key);
    onSelect?.(next);
  };
  const move = (event: KeyboardEvent) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const row = (event.target as HTMLElement).closest<HTMLElement>("[data-at]");
    if (!row) return;
    event.preventDefault();
    const next = Number(row.dataset["at"]) + (event.key === "ArrowDown" ? 1 : -1);
    body.current?.querySelector<HTMLElement>(`[data-at="${next}"]`)?.focus();
  };

  return (
    <div class="table">
      <div class="table-scroll" role="table" aria-label={props.label} aria-rowcount={sorted.length + 1} ref={body} style={{ maxHeight: props.maxHeight ?? "none" }} onKeyDown={move} tabIndex={0}>
        <div role="rowgroup" class="table-head" style={{ minWidth: `${least}px` }}>
          <div role="row" class="table-row head" style={{ gridTemplateColumns: template }}>
            {selected && (
              <span role="columnheader" class="cell">
                <input
                  type="checkbox"
                  aria-label="Select all"
                  checked={isAll}
                  onChange={() => onSelect?.(isAll ? new Set() : new Set(sorted.map((row) => Number(rowKey(row)))))}
                />
              </span>
            )}
            {columns.map((column) => (
              <HeadCell key={column.id} column={column} sorting={props.sorting ?? null} onSort={props.onSort} />
            ))}
          </div>
        </div>
        <div role="rowgroup" class="table-body" style={{ height: `${sorted.length * rowHeight}px`, minWidth: `${least}px` }}>
          {shown.map((row, index) => {
            const key = rowKey(row);
            const at = first + index;
            return (
              <div
                key={key}
                role="row"
                class={`table-row${props.onOpen ? " clickable" : ""}${selected?.has(Number(key)) ? " chosen" : ""}`}
                aria-rowindex={at + 2}
                data-at={at}
                data-key={key}
                tabIndex={props.onOpen ? 0 : -1}
                style={{ gridTemplateColumns: template, height: `${rowHeight}px`, transform: `translateY(${at * rowHeight}px)` }}
                onClick={(event) => {
                  if (!(event.target as HTMLElement).closest("a,button,input,label")) props.onOpen?.(row);
                }}
                onKeyDown={(event) => {
                  if (event.target !== event.currentTarget) return;
                  if (event.key === "Enter") props.onOpen?.(row);
                  if (event.key === " " && selected) {
                    event.preventDefault();
                    toggle(Number(key));
                  }
                }}
              >
                {selected && (
                  <span role="cell" class="cell">
                    <input type="checkbox" aria-label={`Select ${key}`} checked={selected.has(Number(key))} onChange={() => toggle(Number(key))} />
                  </span>
                )}
                {columns.map((column) => (
                  <span key={column.id} role="cell" class={`cell${column.isNumber ? " num" : ""}`}>
                    {column.cell(row)}
                  </span>
                ))}
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}

function HeadCell<T>({ column, sorting, onSort }: { column: Column<T>; sorting: Sorting | null; onSort: ((sorting: Sorting | null) => void) | undefined }): VNode {
  const isSorted = sorting?.id === column.id;
  const order = isSorted ? (sorting.isDown ? "descending" : "ascending") : "none";
  const press = () => onSort?.(isSorted && !sorting.isDown ? null : { id: column.id, isDown: !isSorted });
  return (
    <span role="columnheader" aria-sort={column.sort ? order : undefined} class={`cell${column.isNumber ? " num" : ""}`}>
      {column.sort && onSort ? (
        <button class="sort" onClick={press}>
          {column.title}
          <span aria-hidden="true" class="sort-mark">
            {isSorted ? (sorting.isDown ? "↓" : "↑") : ""}
          </span>
        </button>
      ) : (
        column.title
      )}
    </span>
  );
}

export function sortRows<T>(rows: readonly T[], columns: readonly Column<T>[], sorting: Sorting | null): readonly T[] {
  const by = sorting && columns.find((column) => column.id === sorting.id)?.sort;
  if (!by) return rows;
  const sign = sorting.isDown ? -1 : 1;
  return [...rows].sort((a, b) => {
    const x = by(a);
    const y = by(b);
    if (x === null || y === null) return x === y ? 0 : x === null ? 1 : -1; // what is missing comes last
    return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
  });
}
