"""Snapshots: the state of a server in two files, `server-00000.json` and `.safetensors`, and back.

A folder with the snapshots of several servers can be loaded by any other number of them: each takes what is its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from trek.errors import CheckpointError, InputError, StorageError
from trek.ps.dense import DenseParameter
from trek.ps.distinct_ids import owners
from trek.ps.placement import parts_of
from trek.ps.rules import Rule
from trek.ps.server_state import Mode, ServerState
from trek.ps.snapshot_files import (
    Cut,
    check_whole,
    discard_snapshot,
    parts_of_snapshot,
    publish_snapshot,
    snapshot_documents,
)
from trek.ps.table import TableState
from trek.ps.table_spec import TableSpec


def write_snapshot(state: ServerState, folder: Path, *, server: int, cut: Cut | None = None) -> None:
    """Write the state; the document last, so that a snapshot with a document is complete.

    StorageError if that is not possible; then a snapshot that was there before is still there. That of a `cut` counts
    once it is published; see `snapshot_files`.
    """
    if state.pending:
        raise InputError(
            f"{len(state.pending)} pushes wait for the others of their step: save a synchronous training between steps."
        )
    tensors: dict[str, torch.Tensor] = {}
    own = cut or Cut()
    document = {
        "cut": own.name,
        "num_servers": own.num_servers,
        "version": state.version,
        "mode": asdict(state.mode),
        "is_initialized": state.is_initialized,
        "ledger": state.ledger.sequences(),
        "digests": state.ledger.digests(),
        "dense": [_describe_dense(name, start, one, tensors) for (name, start), one in state.dense.items()],
        "tables": [_describe_table(state, name, tensors) for name in state.tables],
    }
    parts = parts_of_snapshot(folder, server=server, cut=own)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_file(tensors, parts[0])
        parts[1].write_text(json.dumps(document))
    except (OSError, SafetensorError) as error:
        discard_snapshot(folder, server=server, cut=own)
        raise StorageError(
            f"a parameter server cannot write its state to {folder}: {error}. Free some space, or use another folder."
        ) from error
    if not own.name:
        publish_snapshot(folder, server=server, cut=own)


def read_snapshot(folder: Path, *, server: int, num_servers: int, spill: Path | None) -> ServerState:
    """The state of server number `server` of `num_servers`, from the snapshots of any number of servers."""
    if not 0 <= server < num_servers:
        raise InputError(f"a server to restore must be one of at least 1, from 0: got {server} of {num_servers}.")
    with ExitStack() as opened:
        state = ServerState(folder=spill)
        opened.callback(state.close)
        with _damages_reported(folder):
            _read(state, folder, server=server, num_servers=num_servers)
        opened.pop_all()
        return state


@contextmanager
def _damages_reported(folder: Path) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"the snapshot of parameter servers in {folder} is incomplete or damaged: {type(error).__name__}: {error}."
        ) from error


def _read(state: ServerState, folder: Path, *, server: int, num_servers: int) -> None:
    whole: dict[str, dict[int, tuple[torch.Tensor, dict[str, Any], dict[str, Any]]]] = {}
    for document, tensors in _documents(folder):
        state.version = max(state.version, document["version"])
        state.mode, state.is_initialized = Mode(**document["mode"]), document["is_initialized"]
        state.ledger.merge(document["ledger"], document.get("digests", {}))  # older snapshots have no digests
        for entry in document["dense"]:
            value = tensors.get_tensor(f"dense/{entry['name']}/{entry['start']}")
            whole.setdefault(entry["name"], {})[entry["start"]] = (value, _read_state(entry, tensors), entry)
        for entry in document["tables"]:
            _load_rows(state, entry, tensors, server=server, num_servers=num_servers)
    for name, parts in whole.items():
        _load_dense(state, name, parts, server=server, num_servers=num_servers)


def _describe_dense(name: str, start: int, one: DenseParameter, tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    tensors[f"dense/{name}/{start}"] = one.value.contiguous()
    plain: dict[str, Any] = {}
    for slot, value in one.state.items():
        if isinstance(value, torch.Tensor):
            tensors[f"dense/{name}/{start}/{slot}"] = value.contiguous()
        else:
            plain[slot] = value
    slots = [slot for slot, value in one.state.items() if isinstance(value, torch.Tensor)]
    return {"name": name, "start": start, "rule": _spelled(one.rule), "slots": slots, "plain": plain}


def _describe_table(state: ServerState, name: str, tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    table = state.tables[name]
    saved = table.state()
    own = {
        "ids": torch.from_numpy(saved.ids),
        "values": saved.values,
        "touched": torch.from_numpy(saved.touched),
        "waiting_ids": torch.from_numpy(saved.waiting_ids),
        "waiting_counts": torch.from_numpy(saved.waiting_counts),
        **{f"slot/{slot}": block for slot, block in saved.slots.items()},
    }
    tensors.update({f"table/{name}/{part}": tensor.contiguous() for part, tensor in own.items()})
    spec = table.spec.model_dump()
    numbers = {"step": saved.step, "aged_at": saved.aged_at}
    return {"spec": spec, **numbers, "rule": _spelled(table.rule), "slots": list(saved.slots)}


def _documents(folder: Path) -> Iterator[tuple[dict[str, Any], Any]]:
    paths = snapshot_documents(folder)
    if not paths:
        raise CheckpointError(f"{folder} has no snapshot of parameter servers.")
    documents = [json.loads(path.read_text()) for path in paths]
    check_whole(folder, documents)
    for path, document in zip(paths, documents, strict=True):
        with safe_open(path.with_suffix(".safetensors"), "pt") as tensors:
            yield document, tensors


def _read_state(entry: Mapping[str, Any], tensors: Any) -> dict[str, Any]:
    prefix = f"dense/{entry['name']}/{entry['start']}"
    return {**entry["plain"], **{slot: tensors.get_tensor(f"{prefix}/{slot}") for slot in entry["slots"]}}


def _load_dense(
    state: ServerState,
    name: str,
    parts: Mapping[int, tuple[torch.Tensor, dict[str, Any], dict[str, Any]]],
    *,
    server: int,
    num_servers: int,
) -> None:
    """Join the parts of a parameter, and keep those of this server."""
    ordered = [parts[start] for start in sorted(parts)]
    value, slots, entry = ordered[0]
    if len(ordered) > 1:
        value = torch.cat([part.reshape(-1) for part, _, _ in ordered])
    for part in parts_of(name, value.numel(), num_servers=num_servers):
        if part.server != server:
            continue
        is_whole = part.stop - part.start == value.numel() and len(ordered) == 1
        own = DenseParameter(
            value if is_whole else value.reshape(-1)[part.start : part.stop], version=state.next_version
        )
        if entry["rule"] is not None:
            joined = {
                slot: _cut([one[1][slot] for one in ordered], part.start, part.stop, is_whole=is_whole)
                for slot in slots
            }
            own.load(joined, rule=Rule(*entry["rule"]))
        state.dense[name, part.start] = own


def _cut(pieces: list[Any], start: int, stop: int, *, is_whole: bool) -> Any:
    """The part of a slot; what is one number for a whole parameter, such as its step, stays so."""
    first = pieces[0]
    if is_whole or not isinstance(first, torch.Tensor) or first.dim() == 0:
        return first.clone() if isinstance(first, torch.Tensor) else first
    return torch.cat([piece.reshape(-1) for piece in pieces])[start:stop].clone()


def _load_rows(state: ServerState, entry: Mapping[str, Any], tensors: Any, *, server: int, num_servers: int) -> None:
    spec = TableSpec.of(**entry["spec"])
    state.add_table(spec)

    def read(part: str) -> torch.Tensor:
        found: torch.Tensor = tensors.get_tensor(f"table/{spec.name}/{part}")
        return found

    ids, waiting = read("ids").numpy(), read("waiting_ids").numpy()
    own = torch.from_numpy(np.flatnonzero(owners(ids, num_servers=num_servers) == server))
    own_waiting = owners(waiting, num_servers=num_servers) == server
    saved = TableState(
        ids=ids[own.numpy()],
        values=read("values")[own],
        slots={slot: read(f"slot/{slot}")[own] for slot in entry["slots"]},
        touched=read("touched").numpy()[own.numpy()],
        step=entry["step"],
        waiting_ids=waiting[own_waiting],
        waiting_counts=read("waiting_counts").numpy()[own_waiting],
        aged_at=entry.get("aged_at", 0),  # older snapshots do not have it
    )
    state.tables[spec.name].load(saved, rule=Rule(*entry["rule"]) if entry["rule"] else None)


def _spelled(rule: Rule | None) -> list[str] | None:
    return None if rule is None else [rule.kind, rule.settings]
