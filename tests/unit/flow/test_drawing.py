"""Pictures of graphs."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from trek.flow.drawing import GraphNode, draw_mermaid, draw_svg, draw_text, fold_maps

NODES = [
    GraphNode("download", (), "cached"),
    GraphNode("prepare <x>", ("download",), "done", 1.25),
    GraphNode("fit", ("prepare <x>", "download"), "failed", 3.0),
]


def test_text_shows_state_time_and_what_comes_before() -> None:
    assert draw_text(NODES).splitlines() == [
        "= download     cached",
        "✓ prepare <x>  done 1.2 s        ← download",
        "✗ fit          failed 3.0 s      ← prepare <x>, download",
    ]


def test_mermaid_has_a_node_and_an_edge_for_each() -> None:
    lines = draw_mermaid(NODES).splitlines()
    assert lines[0] == "flowchart TD"
    assert sum("-->" in line for line in lines) == 3
    assert '    s2["fit<br/>failed 3.0 s"]:::failed' in lines


def test_svg_is_well_formed_and_puts_steps_below_what_they_wait_for() -> None:
    root = ElementTree.fromstring(draw_svg(NODES))
    spots = [int(rect.attrib["y"]) for rect in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert spots == sorted(set(spots))
    ways = [path.attrib["d"] for path in root.iter("{http://www.w3.org/2000/svg}path") if "marker-end" in path.attrib]
    assert ["C" in way for way in ways] == [False, False, True], "past a step that is between, an edge makes a bend"


def _map(name: str, width: int, *, after: str = "", state: str = "done") -> list[GraphNode]:
    return [GraphNode(f"{name}[{n}]", (after.format(n),) if after else (), state, 1.0) for n in range(width)]


def test_a_wide_map_is_one_node_with_a_count() -> None:
    """A map of 1,000 was 1,000 boxes in a picture of 200,000 pixels, and 1,000 names behind the arrow of its join."""
    first = [*_map("f", 1000, after="source")[:-2], GraphNode("f[998]", ("source",), "failed"), GraphNode("f[999]", ())]
    second = _map("g", 1000, after="f[{}]")
    small = _map("h", 3, after="g[{}]")
    join = GraphNode("f", tuple(node.name for node in second))
    folded = fold_maps([GraphNode("source", ()), *first, *second, *small, join])
    assert [(node.name, node.after, node.caption) for node in folded] == [
        ("source", (), "pending"),
        ("f[0-999]", ("source",), "1000 steps: 998 done, 1 failed, 1 pending"),
        ("g[0-999]", ("f[0-999]",), "1000 steps: 1000 done"),
        *[(f"h[{n}]", ("g[0-999]",), "done 1.0 s") for n in range(3)],
        ("f", ("g[0-999]",), "pending"),
    ]
    assert [node.state for node in folded[1:3]] == ["failed", "done"]
