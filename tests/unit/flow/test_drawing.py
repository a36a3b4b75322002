"""Pictures of graphs."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from trek.flow.drawing import GraphNode, draw_mermaid, draw_svg, draw_text

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
