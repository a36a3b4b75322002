// The command palette and the keys: Ctrl K or / opens it, g and a letter goes to a page.
import type { VNode } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { NAVIGATION } from "../app";
import { getPage } from "../lib/api";
import { useQuery } from "../lib/query";
import { go, href } from "../lib/router";
import type { Experiment } from "../lib/types";
import { Dialog } from "./bits";

export function useShortcuts(): [boolean, (isOpen: boolean) => void] {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    let isGo = false;
    const press = (event: KeyboardEvent) => {
      const isTyping = (event.target as HTMLElement).matches?.("input,textarea,select,[contenteditable]");
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        setOpen(true);
      } else if (!isTyping && event.key === "/") {
        event.preventDefault();
        const search = document.querySelector<HTMLInputElement>("main input[type=search]");
        if (search) search.focus();
        else setOpen(true);
      } else if (!isTyping && isGo) {
        const page = NAVIGATION.find((one) => one.key === event.key);
        if (page) go(`#/${page.path}`);
      }
      isGo = !isTyping && event.key === "g";
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, []);
  return [isOpen, setOpen];
}

interface Item {
  id: string;
  title: string;
  note: string;
  target: string;
}

export function Palette({ onClose }: { onClose: () => void }): VNode {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const experiments = useQuery("palette", () => getPage<Experiment>("/experiments", { limit: 1000 }), { subjects: null });
  const items = useMemo(() => matching(allItems(experiments.data?.items ?? []), text).slice(0, 12), [experiments.data, text]);
  const open = (item: Item | undefined) => {
    if (!item) return;
    onClose();
    go(item.target);
  };
  const press = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setAt((now) => (now + (event.key === "ArrowDown" ? 1 : items.length - 1)) % Math.max(1, items.length));
    } else if (event.key === "Enter") {
      event.preventDefault();
      open(items[at]);
    }
  };
  return (
    <Dialog title="Go to" onClose={onClose}>
      <input
        class="input"
        type="text"
        role="combobox"
        aria-label="Page, experiment or trial"
        aria-expanded="true"
        aria-controls="palette-items"
        aria-activedescendant={items[at] ? `palette-${items[at].id}` : undefined}
        placeholder="A page, an experiment, or trial 12"
        autofocus
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setAt(0);
        }}
        onKeyDown={press}
      />
      <ul class="palette" id="palette-items" role="listbox" aria-label="Matches">
        {items.map((item, index) => (
          <li key={item.id} id={`palette-${item.id}`} role="option" aria-selected={index === at} onClick={() => open(item)} onPointerEnter={() => setAt(index)}>
            <span>{item.title}</span>
            <span class="muted small">{item.note}</span>
          </li>
        ))}
      </ul>
      <p class="muted small">
        <kbd>/</kbd> search · <kbd>g</kbd> then <kbd>e</kbd> <kbd>f</kbd> <kbd>m</kbd> <kbd>c</kbd> <kbd>u</kbd> goes to a page
      </p>
    </Dialog>
  );
}

function allItems(experiments: readonly Experiment[]): Item[] {
  return [
    ...NAVIGATION.map((one) => ({ id: one.path, title: one.title, note: "page", target: `#/${one.path}` })),
    ...experiments.map((one) => ({ id: `e${one.id}`, title: `${one.id} ${one.name}`, note: one.state, target: href(["experiments", one.id]) })),
  ];
}

export function matching(items: readonly Item[], text: string): Item[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const trial = /^\s*trial\s+(\d+)\s*$/i.exec(text);
  const found = items.filter((item) => words.every((word) => item.title.toLowerCase().includes(word)));
  return trial ? [{ id: `t${trial[1]}`, title: `Trial ${trial[1]}`, note: "trial", target: href(["trials", trial[1]!]) }, ...found] : found;
}
