// Data on the screen: fetched once, fetched again when the stream of changes says so, never two fetches at a time.
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "./api";
import { onChange } from "./live";

export interface Result<T> {
  data: T | null;
  error: Error | null;
  isLoading: boolean;
  reload: () => void;
}

const MIN_GAP_MS = 400;

/** The errors of queries that show older data, because they could not fetch again. */
const outdated = new Map<object, Error>();
const outdatedListeners = new Set<(error: Error | null) => void>();

/** Calls back with why something on the screen may be out of date; null if nothing is. */
export function onOutdated(callback: (error: Error | null) => void): () => void {
  outdatedListeners.add(callback);
  return () => void outdatedListeners.delete(callback);
}

/** Says that `query` shows older data because of `error`, or, with null, that it does not. */
export function setOutdated(query: object, error: Error | null): void {
  const isChanged = error === null ? outdated.delete(query) : Boolean(outdated.set(query, error));
  if (!isChanged) return;
  const [first = null] = outdated.values();
  for (const listener of outdatedListeners) listener(first);
}

/** The data to show after a failed fetch: none if it was deleted, else the older data. */
export function afterFailure<T>(data: T | null, error: Error): T | null {
  return error instanceof ApiError && error.status === 404 ? null : data;
}

export interface QueryOptions {
  /** Fetch again when these change; "metrics:3" names one, "metrics:" all of a kind, [] anything, null nothing. */
  subjects?: readonly string[] | null;
  /** Fetch again after so many milliseconds, for what the stream does not tell of. */
  everyMs?: number | null;
  isEnabled?: boolean;
}

export function useQuery<T>(key: string, fetcher: () => Promise<T>, options: QueryOptions = {}): Result<T> {
  const { subjects = [], everyMs = null, isEnabled = true } = options;
  const [state, setState] = useState<{ key: string; data: T | null; error: Error | null }>({
    key,
    data: null,
    error: null,
  });
  const latest = useRef(state);
  latest.current = state;
  const fetch = useRef(fetcher);
  fetch.current = fetcher;
  const reload = useRef<() => void>(() => {});

  useEffect(() => {
    if (!isEnabled) return;
    let isGone = false;
    const runner = new Runner(async () => {
      try {
        const data = await fetch.current();
        if (!isGone) show(data, null);
      } catch (error) {
        const { key: oldKey, data } = latest.current;
        if (!isGone) show(oldKey === key ? afterFailure(data, error as Error) : null, error as Error);
      }
    });
    const show = (data: T | null, error: Error | null) => {
      setState({ key, data, error });
      setOutdated(runner, data === null ? null : error);
    };
    reload.current = () => runner.request();
    runner.request();
    const unsubscribe = subjects === null ? () => {} : onChange(subjects, () => runner.request());
    const timer = everyMs === null ? undefined : setInterval(() => runner.request(), everyMs);
    return () => {
      isGone = true;
      runner.stop();
      setOutdated(runner, null);
      unsubscribe();
      clearInterval(timer);
    };
  }, [key, isEnabled, everyMs, subjects === null ? null : subjects.join()]);

  const isCurrent = state.key === key;
  return {
    data: isCurrent ? state.data : null,
    error: isCurrent ? state.error : null,
    isLoading: isEnabled && (!isCurrent || (state.data === null && state.error === null)),
    reload: () => reload.current(),
  };
}

/** Runs work one at a time with a pause between; a request during work is one more run after it, so none is lost. */
export class Runner {
  private isBusy = false;
  private isWanted = false;
  private isStopped = false;

  constructor(
    private readonly work: () => Promise<void>,
    private readonly gapMs: number = MIN_GAP_MS,
    private readonly later: (callback: () => void, ms: number) => void = (callback, ms) => void setTimeout(callback, ms),
  ) {}

  request(): void {
    if (this.isStopped) return;
    if (this.isBusy) {
      this.isWanted = true;
      return;
    }
    this.isBusy = true;
    this.isWanted = false;
    void this.work().finally(() =>
      this.later(() => {
        this.isBusy = false;
        if (this.isWanted) this.request();
      }, this.gapMs),
    );
  }

  stop(): void {
    this.isStopped = true;
  }
}
