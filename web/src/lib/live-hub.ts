// One connection to the stream of changes for all tabs: runs in a SharedWorker, or in the page where there is none.
// Events carry ids, and the browser sends the last one when it reconnects, so that the server tells what was missed.

export type LiveMessage = { kind: "change"; subjects: string[] | null } | { kind: "state"; isOpen: boolean };
export type Listener = (message: LiveMessage) => void;

interface Source {
  addEventListener(name: string, callback: (event: MessageEvent<string>) => void): void;
  close(): void;
  readonly readyState: number;
}

const CLOSED = 2;
const RETRY_MS = 3000;

export class LiveHub {
  private source: Source | null = null;
  private isOpen = false;
  private listeners = new Set<Listener>();

  constructor(
    private readonly open: () => Source,
    private readonly later: (callback: () => void, ms: number) => void = (callback, ms) => void setTimeout(callback, ms),
  ) {}

  add(listener: Listener): void {
    this.listeners.add(listener);
    if (this.source === null) this.connect();
    else {
      // Whoever comes later has not seen what was told before.
      listener({ kind: "state", isOpen: this.isOpen });
      listener({ kind: "change", subjects: null });
    }
  }

  remove(listener: Listener): void {
    this.listeners.delete(listener);
    if (this.listeners.size === 0) this.disconnect();
  }

  private connect(): void {
    const source = this.open();
    this.source = source;
    source.addEventListener("change", (event) => {
      this.setOpen(true);
      const { subjects } = JSON.parse(event.data) as { subjects: string[] | null };
      this.tell({ kind: "change", subjects });
    });
    source.addEventListener("open", () => this.setOpen(true));
    source.addEventListener("error", () => {
      this.setOpen(false);
      // A refusal ends the source for good, and so does a proxy's error page: a new one is made.
      if (source.readyState === CLOSED) {
        this.disconnect();
        this.later(() => {
          if (this.listeners.size > 0 && this.source === null) this.connect();
        }, RETRY_MS);
      }
    });
  }

  private disconnect(): void {
    this.source?.close();
    this.source = null;
    this.isOpen = false;
  }

  private setOpen(isOpen: boolean): void {
    if (this.isOpen === isOpen) return;
    this.isOpen = isOpen;
    this.tell({ kind: "state", isOpen });
  }

  private tell(message: LiveMessage): void {
    for (const listener of this.listeners) listener(message);
  }
}
