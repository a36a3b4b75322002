"""Pictures of a graph with the state and time of every step: as text, Mermaid and SVG. Draws plain data only.

The steps of a wide map are one node with a count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape

_SIGNS = {"done": "✓", "cached": "=", "failed": "✗", "running": "▶", "skipped": "-", "blocked": "!", "interrupted": "!"}
_COLOURS = {
    "done": "#c8e6c9",
    "cached": "#e3f2fd",
    "failed": "#ffcdd2",
    "running": "#fff9c4",
    "interrupted": "#ffe0b2",
    "blocked": "#eeeeee",
    "skipped": "#eeeeee",
    "pending": "#ffffff",
}
_BY_WEIGHT = ("failed", "interrupted", "running", "pending", "blocked", "done", "cached", "skipped")
_PART = re.compile(r"(.+)\[\d+\](_\d+)?")
"""The name of a step of a map; a second map of the same function has a number behind."""
_WIDE = 12
"""A map of more steps than this is drawn as one node."""
_BOX_WIDTH, _BOX_HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 180, 44, 24, 44, 16
_BEND = (_BOX_WIDTH + _GAP_X) * 2 // 3
"""A curve bends three quarters of the way to its control points: into the gap beside a box."""


@dataclass(frozen=True)
class GraphNode:
    """One step as it is drawn."""

    name: str
    after: tuple[str, ...]
    state: str = "pending"
    seconds: float | None = None
    parts: Mapping[str, int] = field(default_factory=dict)
    """Of a map, how many of its steps are in which state."""

    @property
    def caption(self) -> str:
        """State and time in a few letters, or how far a map is."""
        if self.parts:
            counts = ", ".join(f"{count} {state}" for state, count in self.parts.items())
            return f"{sum(self.parts.values())} steps: {counts}"
        return self.state if self.seconds is None else f"{self.state} {self.seconds:.1f} s"


def fold_maps(nodes: Sequence[GraphNode]) -> list[GraphNode]:
    """`nodes` with the steps of every wide map as one node, which stands where the first of them stood."""
    sizes = Counter(map_of(node.name) for node in nodes)
    wide = {name: f"{name}[0-{size - 1}]" for name, size in sizes.items() if name is not None and size > _WIDE}
    names = {node.name: wide[whole] for node in nodes if (whole := map_of(node.name)) in wide and whole is not None}
    folded: dict[str, GraphNode] = {}
    states: dict[str, Counter[str]] = {}
    for node in nodes:
        name = names.get(node.name, node.name)
        after = [*(folded[name].after if name in folded else ()), *(names.get(up, up) for up in node.after)]
        folded[name] = replace(node, name=name, after=tuple(up for up in dict.fromkeys(after) if up != name))
        states.setdefault(name, Counter())[node.state] += 1
    for name in wide.values():
        folded[name] = replace(folded[name], state=state_of_all(states[name]), seconds=None, parts=states[name])
    return list(folded.values())


def map_of(name: str) -> str | None:
    """The name of the map that a step called `name` is one of; None if it is not one of a map's."""
    match = _PART.fullmatch(name)
    return f"{match[1]}{match[2] or ''}" if match else None


def state_of_all(states: Mapping[str, int]) -> str:
    """The state of a map whose steps are in these states: the one that matters most."""
    return next((state for state in _BY_WEIGHT if states.get(state)), "pending")


def draw_text(nodes: Sequence[GraphNode]) -> str:
    """One line a step, in an order in which they may run."""
    width = max((len(node.name) for node in nodes), default=0)
    room = max([16, *(len(node.caption) for node in nodes)])
    lines = []
    for node in nodes:
        sign = _SIGNS.get(node.state, " ")
        arrow = f"  ← {', '.join(node.after)}" if node.after else ""
        lines.append(f"{sign} {node.name:<{width}}  {node.caption:<{room}}{arrow}".rstrip())
    return "\n".join(lines)


def draw_mermaid(nodes: Sequence[GraphNode]) -> str:
    """A flowchart in Mermaid's language."""
    ids = {node.name: f"s{index}" for index, node in enumerate(nodes)}
    lines = ["flowchart TD"]
    for node in nodes:
        label = node.name.replace('"', "#quot;")
        lines.append(f'    {ids[node.name]}["{label}<br/>{node.caption}"]:::{node.state}')
    for node in nodes:
        lines += [f"    {ids[up]} --> {ids[node.name]}" for up in node.after if up in ids]
    used = dict.fromkeys(node.state for node in nodes)
    lines += [f"    classDef {state} fill:{_COLOURS.get(state, '#ffffff')},stroke:#555" for state in used]
    return "\n".join(lines)


def draw_svg(nodes: Sequence[GraphNode]) -> str:
    """A picture by itself: layers from top to bottom, a step below everything it waits for."""
    spots = _layout(nodes)
    width = max((x for x, _ in spots.values()), default=0) + _BOX_WIDTH + _MARGIN
    height = max((y for _, y in spots.values()), default=0) + _BOX_HEIGHT + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker></defs>',
    ]
    for node in nodes:
        parts += [_svg_edge(spots[up], spots[node.name]) for up in node.after if up in spots]
    parts += [_svg_box(node, *spots[node.name]) for node in nodes]
    return "\n".join([*parts, "</svg>"])


def _layout(nodes: Sequence[GraphNode]) -> dict[str, tuple[int, int]]:
    """Nodes come in an order in which they may run, so one pass finds every layer."""
    layers: dict[str, int] = {}
    for node in nodes:
        layers[node.name] = 1 + max((layers[up] for up in node.after if up in layers), default=-1)
    counts: dict[int, int] = {}
    spots = {}
    for node in nodes:
        layer = layers[node.name]
        column = counts.get(layer, 0)
        counts[layer] = column + 1
        spots[node.name] = _MARGIN + column * (_BOX_WIDTH + _GAP_X), _MARGIN + layer * (_BOX_HEIGHT + _GAP_Y)
    return spots


def _svg_edge(start: tuple[int, int], end: tuple[int, int]) -> str:
    x1, y1 = start[0] + _BOX_WIDTH // 2, start[1] + _BOX_HEIGHT
    x2, y2 = end[0] + _BOX_WIDTH // 2, end[1]
    is_long = y2 - y1 > _GAP_Y  # it would run behind the boxes of the layers between
    way = f"C{x1 + _BEND},{y1 + _GAP_Y} {x2 + _BEND},{y2 - _GAP_Y} {x2},{y2}" if is_long else f"L{x2},{y2}"
    return f'<path d="M{x1},{y1} {way}" fill="none" stroke="#555" marker-end="url(#tip)"/>'


def _svg_box(node: GraphNode, x: int, y: int) -> str:
    middle = x + _BOX_WIDTH // 2
    name = node.name if len(node.name) <= 22 else f"{node.name[:21]}…"
    return (
        f"<g><title>{escape(node.name)}: {escape(node.caption)}</title>"
        f'<rect x="{x}" y="{y}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="6" '
        f'fill="{_COLOURS.get(node.state, "#ffffff")}" stroke="#555"/>'
        f'<text x="{middle}" y="{y + 19}" text-anchor="middle" font-size="14">{escape(name)}</text>'
        f'<text x="{middle}" y="{y + 36}" text-anchor="middle" font-size="11">{escape(node.caption)}</text></g>'
    )
