// Plain JSON as YAML, for showing and editing configs. Reading YAML is the server's work.
import type { Json } from "./types";

const PLAIN = /^[A-Za-z_./][\w ./:@%+=,()\-]*$/;
const RESERVED = /^(true|false|null|yes|no|on|off|~|y|n)$/i;

export function toYaml(value: Json, indent = 0): string {
  const pad = "  ".repeat(indent);
  if (Array.isArray(value) && value.length > 0) {
    return value.map((item) => `${pad}- ${inline(item, indent)}`).join("\n");
  }
  if (value !== null && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length > 0) {
    return Object.entries(value)
      .map(([key, item]) => `${pad}${scalar(key)}:${after(item, indent)}`)
      .join("\n");
  }
  return pad + scalar(value);
}

function isBlock(value: Json): boolean {
  return value !== null && typeof value === "object" && Object.keys(value).length > 0;
}

function after(value: Json, indent: number): string {
  return isBlock(value) ? `\n${toYaml(value, indent + 1)}` : ` ${scalar(value)}`;
}

function inline(value: Json, indent: number): string {
  return isBlock(value) ? toYaml(value, indent + 1).trimStart() : scalar(value);
}

function scalar(value: Json): string {
  if (typeof value !== "string") return Array.isArray(value) ? "[]" : JSON.stringify(value);
  const isPlain = PLAIN.test(value) && !RESERVED.test(value) && !/: |:$|\s$/.test(value) && !/^[.\d]+(e|$)/i.test(value);
  return isPlain ? value : JSON.stringify(value);
}
