"""The page at /docs: every operation of the API and every model, from the OpenAPI description.

Plain HTML without scripts or files of other hosts, so that it works anywhere and its policy allows nothing else.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
code { font-family: ui-monospace, monospace; } h2 { border-bottom: 1px solid #8884; margin-top: 2.5rem; }
summary { cursor: pointer; padding: .3rem 0; } details { border-bottom: 1px solid #8882; }
.method { display: inline-block; font-weight: 600; width: 4.5rem; } .note { opacity: .75; }
table { border-collapse: collapse; margin: .5rem 0 1rem 1rem; } td { padding: .1rem 1rem .1rem 0; vertical-align: top; }
:root { color-scheme: light dark; }
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def api_page(schema: Mapping[str, Any]) -> str:
    """The page, from the OpenAPI description. Pure."""
    title = escape(f"{schema['info']['title']} {schema['info']['version']}")
    operations = "\n".join(_groups(schema["paths"]))
    models = "\n".join(_model(name, model) for name, model in schema["components"]["schemas"].items())
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}: API</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}: API</h1>"
        '<p>The same as <a href="openapi.json">OpenAPI</a>, for clients and tools. Requests carry the header '
        "<code>Authorization: Bearer TOKEN</code>; see <code>trek token create</code>.</p>"
        f"{operations}<h2>Models</h2>{models}</body></html>\n"
    )


def _groups(paths: Mapping[str, Any]) -> Iterator[str]:
    groups: dict[str, list[str]] = {}
    for path, item in paths.items():
        for method, operation in item.items():
            groups.setdefault(next(iter(operation.get("tags", [])), "server"), []).append(
                _operation(method, path, operation)
            )
    for name, operations in groups.items():
        yield f"<h2>{escape(name)}</h2>" + "\n".join(operations)


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    rows = [(one["name"], _type(one["schema"]), one.get("description", "")) for one in operation.get("parameters", [])]
    if "requestBody" in operation:
        rows.append(("body", _content(operation["requestBody"]), ""))
    answers = operation.get("responses", {}).items()
    rows += [(status, _content(answer), answer["description"]) for status, answer in answers]
    is_open = operation.get("security") == []
    text = operation.get("description") or operation.get("summary", "")
    return (
        f'<details><summary><span class="method">{escape(method.upper())}</span> <code>{escape(path)}</code> '
        f'<span class="note">{escape(text)}{" No token is needed." if is_open else ""}</span></summary>'
        f"{_table(rows)}</details>"
    )


def _model(name: str, model: Mapping[str, Any]) -> str:
    rows = [
        (field + ("" if field in model.get("required", ()) else "?"), _type(schema), schema.get("description", ""))
        for field, schema in model.get("properties", {}).items()
    ]
    note = escape(model.get("description", ""))
    head = f'<summary><code>{escape(name)}</code> <span class="note">{note}</span></summary>'
    return f'<details id="{escape(name)}">{head}{_table(rows)}</details>'


def _table(rows: list[tuple[str, str, str]]) -> str:
    cells = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{kind}</td><td>{escape(note)}</td></tr>"
        for name, kind, note in rows
    )
    return f"<table>{cells}</table>"


def _content(holder: Mapping[str, Any]) -> str:
    kinds = [_type(content.get("schema", {})) for content in holder.get("content", {}).values()]
    return ", ".join(kind for kind in kinds if kind)


def _type(schema: Mapping[str, Any]) -> str:
    """A schema in a few words; models are links."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    for alternatives in ("anyOf", "oneOf", "allOf"):
        if alternatives in schema:
            return " or ".join(_type(one) for one in schema[alternatives])
    if "enum" in schema:
        return escape(" | ".join(map(str, schema["enum"])))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {})) or 'anything'}"
    return escape(str(schema.get("type", "")))
