// Nested settings by dotted names.
import type { Json, JsonObject } from "./types";

export function flatten(json: JsonObject, prefix = ""): Map<string, Json> {
  const found = new Map<string, Json>();
  for (const [key, item] of Object.entries(json)) {
    const name = prefix ? `${prefix}.${key}` : key;
    if (item !== null && typeof item === "object" && !Array.isArray(item) && Object.keys(item).length > 0) {
      for (const [inner, leaf] of flatten(item, name)) found.set(inner, leaf);
    } else {
      found.set(name, item);
    }
  }
  return found;
}

/** The names whose values differ among the settings, in the order they first occur. */
export function differing(all: readonly Map<string, Json>[]): string[] {
  const names = new Set(all.flatMap((one) => [...one.keys()]));
  return [...names].filter((name) => new Set(all.map((one) => JSON.stringify(one.get(name) ?? null))).size > 1);
}
