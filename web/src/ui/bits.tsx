// The small parts every page is made of.
import type { ComponentChildren, VNode } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "../lib/api";
import { percent } from "../lib/format";

export function Badge({ state }: { state: string }): VNode {
  return (
    <span class={`badge state-${state}`}>
      <span class="dot" aria-hidden="true" />
      {state}
    </span>
  );
}

export function Progress({ value, state }: { value: number; state?: string }): VNode {
  return (
    <span class="progress-cell">
      <progress class={`progress state-${state ?? "running"}`} max={1} value={value} aria-label="Progress" />
      <span class="num small">{percent(value)}</span>
    </span>
  );
}

export function Sparkline({ values }: { values: readonly number[] }): VNode | null {
  if (values.length < 2) return null;
  const low = Math.min(...values);
  const size = Math.max(...values) - low || 1;
  const points = values.map((one, at) => `${((at / (values.length - 1)) * 78 + 1).toFixed(1)},${(19 - ((one - low) / size) * 18).toFixed(1)}`);
  return (
    <svg class="sparkline" viewBox="0 0 80 20" aria-hidden="true">
      <polyline points={points.join(" ")} />
    </svg>
  );
}

export function Loading({ what = "Loading" }: { what?: string }): VNode {
  return (
    <div class="loading" role="status">
      <span class="spinner" aria-hidden="true" /> {what} …
    </div>
  );
}

export function Failure({ error, retry }: { error: Error; retry?: () => void }): VNode {
  const isGone = error instanceof ApiError && error.status === 404;
  return (
    <div class="failure" role="alert">
      <strong>{isGone ? "This does not exist, or was deleted." : "Something went wrong."}</strong> {error.message}
      {retry && (
        <button class="button small" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }): VNode {
  return (
    <div class="empty">
      <svg viewBox="0 0 64 40" aria-hidden="true" class="empty-art">
        <path d="M2 38 20 10l12 18 8-12 22 22z" />
      </svg>
      <h2>{title}</h2>
      {children}
    </div>
  );
}

export function Command({ text }: { text: string }): VNode {
  const [isCopied, setCopied] = useState(false);
  const copy = () => void navigator.clipboard?.writeText(text).then(() => setCopied(true));
  return (
    <div class="command">
      <code>{text}</code>
      <button class="button ghost small" onClick={copy} aria-label={`Copy: ${text}`}>
        {isCopied ? "Copied" : "Copy"}
      </button>
    </div>
  );
}

export interface Tab {
  id: string;
  title: string;
  count?: number;
}

export function Tabs({ tabs, chosen, onChoose }: { tabs: Tab[]; chosen: string; onChoose: (id: string) => void }): VNode {
  const move = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (step === 0) return;
    const at = tabs.findIndex((tab) => tab.id === chosen);
    const next = tabs[(at + step + tabs.length) % tabs.length]!;
    onChoose(next.id);
    requestAnimationFrame(() => document.getElementById(`tab-${next.id}`)?.focus());
  };
  return (
    <div class="tabs" role="tablist" onKeyDown={move}>
      {tabs.map((tab) => (
        <button
          key={tab.id}
          id={`tab-${tab.id}`}
          role="tab"
          class="tab"
          aria-selected={tab.id === chosen}
          tabIndex={tab.id === chosen ? 0 : -1}
          onClick={() => onChoose(tab.id)}
        >
          {tab.title}
          {tab.count !== undefined && <span class="count">{tab.count}</span>}
        </button>
      ))}
    </div>
  );
}

export function Fact({ label, children }: { label: string; children: ComponentChildren }): VNode {
  return (
    <div class="fact">
      <dt>{label}</dt>
      <dd>{children}</dd>
    </div>
  );
}

export function Card({ title, actions, children, wide }: { title?: string; actions?: ComponentChildren; children: ComponentChildren; wide?: boolean }): VNode {
  return (
    <section class={`card${wide ? " wide" : ""}`} aria-label={title}>
      {(title || actions) && (
        <header class="card-head">
          {title && <h2>{title}</h2>}
          {actions && <div class="card-actions">{actions}</div>}
        </header>
      )}
      {children}
    </section>
  );
}

export function Dialog({ title, onClose, children, wide }: { title: string; onClose: () => void; children: ComponentChildren; wide?: boolean }): VNode {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    element.current?.showModal();
  }, []);
  return (
    <dialog ref={element} class={`dialog${wide ? " wide" : ""}`} aria-label={title} onClose={onClose}>
      <header class="dialog-head">
        <h2>{title}</h2>
        <button class="button ghost small" aria-label="Close" onClick={() => element.current?.close()}>
          ✕
        </button>
      </header>
      {children}
    </dialog>
  );
}

export function Choice<T extends string>({ label, value, options, onChange, isHidden }: { label: string; isHidden?: boolean; value: T; options: readonly (readonly [T, string])[]; onChange: (value: T) => void }): VNode {
  return (
    <label class="choice">
      <span class={isHidden ? "hidden" : ""}>{label}</span>
      <select value={value} onChange={(event) => onChange(event.currentTarget.value as T)}>
        {options.map(([id, title]) => (
          <option key={id} value={id}>
            {title}
          </option>
        ))}
      </select>
    </label>
  );
}

export function Toggle({ label, value, onChange }: { label: string; value: boolean; onChange: (value: boolean) => void }): VNode {
  return (
    <label class="choice toggle">
      <input type="checkbox" checked={value} onChange={(event) => onChange(event.currentTarget.checked)} />
      <span>{label}</span>
    </label>
  );
}

/** A line of text that counts once Enter is pressed or the field is left; until then, updates of the page leave it alone. */
export function Entry({ value, onEnter, hint, label, isNumber }: { value: string; onEnter: (value: string) => void; hint: string; label?: string; isNumber?: boolean }): VNode {
  const [draft, setDraft] = useState<string | null>(null);
  useEffect(() => setDraft(null), [value]);
  return (
    <input
      class={isNumber ? "input short" : "input"}
      type="search"
      inputMode={isNumber ? "numeric" : undefined}
      placeholder={hint}
      aria-label={label}
      value={draft ?? value}
      onInput={(event) => setDraft(event.currentTarget.value)}
      onChange={(event) => onEnter(event.currentTarget.value)}
    />
  );
}

let announce: (text: string, isError: boolean) => void = () => {};

/** A short message at the edge of the page. */
export function tell(text: string, { isError = false } = {}): void {
  announce(text, isError);
}

export function Messages(): VNode {
  const [shown, setShown] = useState<{ id: number; text: string; isError: boolean }[]>([]);
  useEffect(() => {
    let next = 1;
    announce = (text, isError) => {
      const id = next++;
      setShown((old) => [...old.slice(-2), { id, text, isError }]);
      setTimeout(() => setShown((old) => old.filter((one) => one.id !== id)), isError ? 8000 : 3500);
    };
  }, []);
  return (
    <div class="messages" role="status" aria-live="polite">
      {shown.map((one) => (
        <div key={one.id} class={`message${one.isError ? " error" : ""}`}>
          {one.text}
        </div>
      ))}
    </div>
  );
}

/** Runs an action and tells what went wrong. */
export async function act(work: () => Promise<unknown>, done?: string): Promise<boolean> {
  try {
    await work();
    if (done) tell(done);
    return true;
  } catch (error) {
    tell((error as Error).message, { isError: true });
    return false;
  }
}
