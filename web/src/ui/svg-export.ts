// A chart as an SVG file: plain shapes and escaped text.
import { number } from "../lib/format";
import { stretches } from "../lib/series";
import type { Series } from "./chart";

const WIDTH = 960;
const HEIGHT = 540;
const LEFT = 80;
const BOTTOM = 60;
const TOP = 50;
const RIGHT = 20;

export function toSvg(series: readonly Series[], { title, xLabel, isLog }: { title: string; xLabel: string; isLog: boolean }): string {
  const scaleY = (y: number) => (isLog ? Math.log10(y) : y);
  const heights = series.map((one) => one.ys.map((y) => (y === null || !Number.isFinite(scaleY(y)) ? null : scaleY(y))));
  const lines = series.flatMap((one, at) => stretches(heights[at]!).map(([first, last]) => ({ one, at, first, last })));
  const xs = lines.flatMap(({ one, first, last }) => one.xs.slice(first, last + 1));
  const ys = heights.flat().filter((y) => y !== null);
  const [x0, x1] = range(xs);
  const [y0, y1] = range(ys);
  const px = (x: number) => LEFT + ((x - x0) / (x1 - x0)) * (WIDTH - LEFT - RIGHT);
  const py = (y: number) => HEIGHT - BOTTOM - ((y - y0) / (y1 - y0)) * (HEIGHT - TOP - BOTTOM);
  const drawn = lines.map(({ one, at, first, last }) => {
    const path = one.xs.slice(first, last + 1).map((x, index) => `${px(x).toFixed(1)},${py(heights[at]![first + index]!).toFixed(1)}`);
    const points = (first === last ? [...path, ...path] : path).join(" "); // a point alone is drawn as a dot
    return `<polyline points="${points}" fill="none" stroke="${escape(one.color)}" stroke-width="1.5" stroke-linecap="round"><title>${escape(one.label)}</title></polyline>`;
  });
  const ticks = [0, 0.25, 0.5, 0.75, 1].flatMap((share) => {
    const x = x0 + share * (x1 - x0);
    const y = y0 + share * (y1 - y0);
    return [
      `<text x="${px(x)}" y="${HEIGHT - BOTTOM + 20}" text-anchor="middle">${number(x)}</text>`,
      `<text x="${LEFT - 8}" y="${py(y) + 4}" text-anchor="end">${number(isLog ? 10 ** y : y)}</text>`,
      `<line x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${py(y)}" y2="${py(y)}" stroke="#ddd"/>`,
    ];
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="sans-serif" font-size="13">`,
    `<rect width="${WIDTH}" height="${HEIGHT}" fill="#fff"/>`,
    `<text x="${LEFT}" y="28" font-size="17">${escape(title)}</text>`,
    ...ticks,
    ...drawn,
    `<text x="${WIDTH / 2}" y="${HEIGHT - 14}" text-anchor="middle">${escape(xLabel)}</text>`,
    "</svg>",
  ].join("\n");
}

function range(values: readonly number[]): [number, number] {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (!Number.isFinite(low)) return [0, 1];
  return low === high ? [low - 0.5, high + 0.5] : [low, high];
}

export function escape(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}
