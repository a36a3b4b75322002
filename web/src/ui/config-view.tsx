// A config with what was left at its default marked, and where the code came from.
import type { VNode } from "preact";
import { useMemo, useState } from "preact/hooks";
import { get } from "../lib/api";
import { flatten } from "../lib/flatten";
import { value } from "../lib/format";
import { useQuery } from "../lib/query";
import type { Json, JsonObject } from "../lib/types";
import { toYaml } from "../lib/yaml";
import { Card, Fact, Toggle } from "./bits";

export function ConfigView({ config, provenance }: { config: JsonObject; provenance: JsonObject }): VNode {
  const schema = useQuery("config schema", () => get<JsonObject>("/config-schema"), { subjects: null });
  const [withDefaults, setWithDefaults] = useState(true);
  const defaults = useMemo(() => defaultsOf(schema.data ?? {}), [schema.data]);
  const rows = useMemo(() => [...flatten(config)].map(([name, one]) => ({ name, one, isDefault: isDefault(defaults, name, one) })), [config, defaults]);
  const facts = [...flatten(provenance)].filter(([name]) => !name.startsWith("packages") && !name.startsWith("diff"));
  return (
    <>
      <Card title="Config" actions={<Toggle label="Defaults too" value={withDefaults} onChange={setWithDefaults} />}>
        <table class="plain-table">
          <thead><tr><th>Setting</th><th>Value</th><th>Origin</th></tr></thead>
          <tbody>
            {rows.filter((row) => withDefaults || !row.isDefault).map((row) => (
              <tr key={row.name} class={row.isDefault ? "muted" : ""}>
                <td><code>{row.name}</code></td>
                <td class="break">{value(row.one)}</td>
                <td>{row.isDefault ? "default" : "set"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Card>
      <Card title="As YAML"><pre class="code" tabIndex={0} aria-label="Config as YAML">{toYaml(config)}</pre></Card>
      {facts.length > 0 && (
        <Card title="Created with">
          <dl class="facts plain">{facts.map(([name, one]) => <Fact key={name} label={name}>{value(one)}</Fact>)}</dl>
        </Card>
      )}
    </>
  );
}

/** The defaults in a JSON Schema by dotted names. */
export function defaultsOf(schema: JsonObject): Map<string, Json> {
  const found = new Map<string, Json>();
  const definitions = (schema["$defs"] ?? {}) as Record<string, JsonObject>;
  const visit = (node: JsonObject, prefix: string, depth: number) => {
    if (depth > 6) return;
    for (const [name, part] of Object.entries((node["properties"] ?? {}) as Record<string, JsonObject>)) {
      const path = prefix ? `${prefix}.${name}` : name;
      if (part["default"] !== undefined) {
        found.set(path, part["default"]);
        if (part["default"] !== null && typeof part["default"] === "object" && !Array.isArray(part["default"])) {
          for (const [inner, one] of flatten(part["default"])) found.set(`${path}.${inner}`, one);
        }
      }
      for (const reference of [part, ...((part["anyOf"] ?? part["oneOf"] ?? []) as JsonObject[])]) {
        const target = typeof reference["$ref"] === "string" ? definitions[reference["$ref"].split("/").at(-1)!] : undefined;
        if (target) visit(target, path, depth + 1);
      }
    }
  };
  visit(schema, "", 0);
  return found;
}

export function isDefault(defaults: ReadonlyMap<string, Json>, name: string, one: Json): boolean {
  if (defaults.has(name)) return JSON.stringify(defaults.get(name)) === JSON.stringify(one);
  return Array.isArray(one) && one.length === 0 && !name.startsWith("hyperparameters");
}
