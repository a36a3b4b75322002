// Tables and pictures as files. Cells that a spreadsheet would take for formulas are defused; numbers are in full.
import type { Json } from "./types";

/** A value as the cell of a file from which it can be read again. */
export function exact(json: Json | undefined): string | number | null {
  if (json === undefined || json === null) return null;
  return typeof json === "string" || typeof json === "number" ? json : JSON.stringify(json);
}

export function toCsv(rows: readonly (readonly (string | number | null)[])[]): string {
  return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

function cell(value: string | number | null): string {
  if (value === null) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function download(name: string, content: Blob | string, type = "text/plain"): void {
  const blob = typeof content === "string" ? new Blob([content], { type }) : content;
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
