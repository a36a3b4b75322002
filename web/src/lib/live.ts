// What the page knows of changes: it subscribes by subject, and is told when to fetch again.
import { LiveHub, type LiveMessage } from "./live-hub";

type Callback = () => void;

const IDLE_MS = 1000;

const subscriptions = new Map<Callback, readonly string[]>();
const stateListeners = new Set<(isOpen: boolean) => void>();
let isOpen = true;
let stop: Callback | null = null;

/** Calls back when one of `subjects`, or anything at all, may have changed; no subject means any change. */
export function onChange(subjects: readonly string[], callback: Callback): Callback {
  subscriptions.set(callback, subjects);
  return () => void subscriptions.delete(callback);
}

export function onConnection(callback: (isOpen: boolean) => void): Callback {
  stateListeners.add(callback);
  callback(isOpen);
  return () => void stateListeners.delete(callback);
}

/** Listens as soon as the page has nothing more urgent to do. The first message says that anything may have changed. */
export function startLive(): void {
  stop ??= whenIdle(() => (stop = "SharedWorker" in window ? listenShared() : listenAlone()));
}

export function stopLive(): void {
  stop?.();
  stop = null;
}

export function receive(message: LiveMessage): void {
  if (message.kind === "state") {
    isOpen = message.isOpen;
    for (const listener of stateListeners) listener(isOpen);
    return;
  }
  for (const [callback, subjects] of [...subscriptions]) {
    if (concerns(subjects, message.subjects)) callback();
  }
}

export function concerns(wanted: readonly string[], changed: readonly string[] | null): boolean {
  if (changed === null || wanted.length === 0) return changed === null || changed.length > 0;
  return wanted.some((one) =>
    one.endsWith(":") ? changed.some((name) => name.startsWith(one)) : changed.includes(one),
  );
}

function whenIdle(work: Callback): Callback {
  if (!("requestIdleCallback" in window)) {
    const timer = setTimeout(work, IDLE_MS);
    return () => clearTimeout(timer);
  }
  const request = requestIdleCallback(work, { timeout: IDLE_MS });
  return () => cancelIdleCallback(request);
}

function listenShared(): Callback {
  const worker = new SharedWorker(workerAddress(), { type: "module", name: "trek" });
  worker.port.onmessage = (event: MessageEvent<LiveMessage>) => receive(event.data);
  worker.port.start();
  const leave = () => worker.port.postMessage("bye");
  window.addEventListener("pagehide", leave);
  return () => {
    leave();
    window.removeEventListener("pagehide", leave);
  };
}

function listenAlone(): Callback {
  const hub = new LiveHub(() => new EventSource("api/v1/changes/events"));
  hub.add(receive);
  return () => hub.remove(receive);
}

import workerUrl from "./live-worker.ts?sharedworker&url";

interface Policy {
  createScriptURL(url: string): string;
}

interface Policies {
  createPolicy(name: string, rules: Policy): Policy;
}

let policy: Policy | undefined;

/** The worker's address, vouched for where the browser demands it (trusted types), which takes a policy's name once. */
function workerAddress(): string {
  const policies = (window as { trustedTypes?: Policies }).trustedTypes;
  policy ??= policies?.createPolicy("trek", { createScriptURL: () => workerUrl });
  return policy ? policy.createScriptURL("") : workerUrl;
}
