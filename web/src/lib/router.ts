// The place in the page, kept after the # of the address: deep links work under any prefix and reach no server log.
import { useEffect, useState } from "preact/hooks";

export interface Place {
  path: string;
  parts: string[];
  query: URLSearchParams;
}

export function parsePlace(hash: string): Place {
  const text = hash.replace(/^#/, "") || "/";
  const at = text.indexOf("?");
  const path = at < 0 ? text : text.slice(0, at);
  const parts = path.split("/").filter(Boolean).map(decode);
  return { path, parts, query: new URLSearchParams(at < 0 ? "" : text.slice(at + 1)) };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The address of a place; parts are escaped. */
export function href(parts: (string | number)[], query: Record<string, string | number | null | undefined> = {}): string {
  const path = parts.map((part) => encodeURIComponent(String(part))).join("/");
  const entries = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(entries.map(([key, value]) => [key, String(value)])).toString();
  return `#/${path}${text ? `?${text}` : ""}`;
}

export function go(target: string, { replace = false } = {}): void {
  const url = target.startsWith("#") ? target : `#${target}`;
  if (replace) {
    history.replaceState(null, "", url);
    window.dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = url;
  }
}

export function usePlace(): Place {
  const [place, setPlace] = useState(() => parsePlace(location.hash));
  useEffect(() => {
    const update = () => setPlace(parsePlace(location.hash));
    window.addEventListener("hashchange", update);
    return () => window.removeEventListener("hashchange", update);
  }, []);
  return place;
}

/** One value of the query of the present place, and how to set it without a new entry in the history. */
export function useParam(name: string, initial = ""): [string, (value: string) => void] {
  const place = usePlace();
  const value = place.query.get(name) ?? initial;
  const set = (next: string) => {
    const now = parsePlace(location.hash);
    if (next === initial || next === "") now.query.delete(name);
    else now.query.set(name, next);
    const text = now.query.toString();
    go(`#${now.path}${text ? `?${text}` : ""}`, { replace: true });
  };
  return [value, set];
}
