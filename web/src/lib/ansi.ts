// Lines of logs as parts of text with colours. Every other escape code and control character is dropped or shown.

export interface Part {
  text: string;
  style: string;
}

const ESCAPE = /\x1b\[([0-9;]{0,30})m|\x1b\[[0-9;?]{0,30}[A-Za-ln-z]|\x1b\][^\x07\x1b]{0,1000}(?:\x07|\x1b\\)?|\x1b./g;
const CONTROL = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]/g;
const COLORS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

export function parts(line: string): Part[] {
  const found: Part[] = [];
  let style = "";
  let last = 0;
  const push = (text: string) => {
    if (text) found.push({ text: visible(text), style });
  };
  for (const match of line.matchAll(ESCAPE)) {
    push(line.slice(last, match.index));
    last = match.index + match[0].length;
    if (match[1] !== undefined) style = restyle(style, match[1]);
  }
  push(line.slice(last));
  return found;
}

/** Without anything that could move the text around; carriage returns leave the last version of a progress bar. */
export function visible(text: string): string {
  const end = text.replace(/\r+$/, "");
  return end.slice(end.lastIndexOf("\r") + 1).replace(CONTROL, "\ufffd");
}

function restyle(style: string, codes: string): string {
  let now = style.split(" ").filter(Boolean);
  for (const code of codes.split(";").map(Number)) {
    if (code === 0) now = [];
    else if (code === 1) now.push("ansi-bold");
    else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) {
      now = [...now.filter((one) => one === "ansi-bold"), `ansi-${COLORS[code % 10]}`];
    } else if (code === 39) now = now.filter((one) => one === "ansi-bold");
  }
  return [...new Set(now)].join(" ");
}
