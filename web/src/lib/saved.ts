// What a reader chose and finds again: theme, columns, views. Kept in this browser.
import { useEffect, useState } from "preact/hooks";

export function load<T>(name: string, initial: T): T {
  try {
    const text = localStorage.getItem(`trek.${name}`);
    return text === null ? initial : (JSON.parse(text) as T);
  } catch {
    return initial;
  }
}

export function save(name: string, value: unknown): void {
  try {
    localStorage.setItem(`trek.${name}`, JSON.stringify(value));
  } catch {
    // A full or forbidden storage only means that the choice is not found again.
  }
}

export function useSaved<T>(name: string, initial: T): [T, (value: T) => void] {
  const [value, setValue] = useState(() => load(name, initial));
  return [
    value,
    (next: T) => {
      save(name, next);
      setValue(next);
    },
  ];
}

export type Theme = "system" | "light" | "dark";

export function applyTheme(theme: Theme): void {
  if (theme === "system") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.setAttribute("data-theme", theme);
  window.dispatchEvent(new Event("trek-theme"));
}

export function isDark(): boolean {
  const chosen = document.documentElement.getAttribute("data-theme");
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Whether the page is dark; changes with the theme, so that drawings follow. */
export function useDark(): boolean {
  const [dark, setDark] = useState(isDark);
  useEffect(() => {
    const update = () => setDark(isDark());
    const media = matchMedia("(prefers-color-scheme: dark)");
    window.addEventListener("trek-theme", update);
    media.addEventListener("change", update);
    return () => {
      window.removeEventListener("trek-theme", update);
      media.removeEventListener("change", update);
    };
  }, []);
  return dark;
}

/** Seconds since 1970, renewed every second while something runs. */
export function useNow(isRunning = true): number {
  const [now, setNow] = useState(() => Date.now() / 1000);
  useEffect(() => {
    if (!isRunning) return;
    const timer = setInterval(() => setNow(Date.now() / 1000), 1000);
    return () => clearInterval(timer);
  }, [isRunning]);
  return now;
}
