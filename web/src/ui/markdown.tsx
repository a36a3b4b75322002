// Markdown as elements, never as HTML: what somebody wrote can become text, and links to web addresses, and nothing else.
import type { ComponentChildren, VNode } from "preact";

export function Markdown({ text }: { text: string }): VNode {
  return <div class="markdown">{blocks(text.split(/\r?\n/))}</div>;
}

function blocks(lines: string[]): VNode[] {
  const found: VNode[] = [];
  let at = 0;
  const take = (test: (line: string) => boolean): string[] => {
    const taken: string[] = [];
    while (at < lines.length && test(lines[at]!)) taken.push(lines[at++]!);
    return taken;
  };
  while (at < lines.length) {
    const line = lines[at]!;
    const heading = /^(#{1,4})\s+(.*)$/.exec(line);
    if (line.startsWith("```")) {
      at += 1;
      const code = take((one) => !one.startsWith("```"));
      at += 1;
      found.push(<pre><code>{code.join("\n")}</code></pre>);
    } else if (heading) {
      at += 1;
      found.push(headingOf(heading[1]!.length, inline(heading[2]!)));
    } else if (/^\s*[-*]\s+/.test(line)) {
      const items = take((one) => /^\s*[-*]\s+/.test(one));
      found.push(<ul>{items.map((item) => <li>{inline(item.replace(/^\s*[-*]\s+/, ""))}</li>)}</ul>);
    } else if (/^\s*\d+[.)]\s+/.test(line)) {
      const items = take((one) => /^\s*\d+[.)]\s+/.test(one));
      found.push(<ol>{items.map((item) => <li>{inline(item.replace(/^\s*\d+[.)]\s+/, ""))}</li>)}</ol>);
    } else if (line.startsWith(">")) {
      const quoted = take((one) => one.startsWith(">"));
      found.push(<blockquote>{inline(quoted.map((one) => one.replace(/^>\s?/, "")).join(" "))}</blockquote>);
    } else if (line.trim() === "") {
      at += 1;
    } else {
      const text = take((one) => one.trim() !== "" && !/^(#{1,4}\s|```|>|\s*[-*]\s+|\s*\d+[.)]\s+)/.test(one));
      if (text.length === 0) text.push(lines[at++]!);
      found.push(<p>{inline(text.join(" "))}</p>);
    }
  }
  return found;
}

function headingOf(level: number, content: ComponentChildren): VNode {
  // The page has its own h1 and h2.
  return level <= 2 ? <h3>{content}</h3> : <h4>{content}</h4>;
}

const INLINE = /`([^`]+)`|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*|\[([^\]]+)\]\(([^)\s]+)\)|(https?:\/\/[^\s<>"')]+)/g;

function inline(text: string): ComponentChildren[] {
  const found: ComponentChildren[] = [];
  let last = 0;
  for (const match of text.matchAll(INLINE)) {
    found.push(text.slice(last, match.index));
    last = match.index + match[0].length;
    const [whole, code, strong, emphasis, label, target, url] = match;
    if (code) found.push(<code>{code}</code>);
    else if (strong) found.push(<strong>{strong}</strong>);
    else if (emphasis) found.push(<em>{emphasis}</em>);
    else if (label && target) found.push(isSafe(target) ? link(target, label) : whole);
    else if (url) found.push(link(url, url));
  }
  found.push(text.slice(last));
  return found;
}

function link(target: string, label: string): VNode {
  return (
    <a href={target} target="_blank" rel="noopener noreferrer nofollow">
      {label}
    </a>
  );
}

export function isSafe(target: string): boolean {
  return /^(https?:\/\/|mailto:|#\/)/i.test(target);
}
