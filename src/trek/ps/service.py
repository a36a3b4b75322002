"""Service: the answers of a parameter server, whichever way a request came. One request changes the state at a time.

Rows are read by many at the same time: that changes nothing, see `Table`. But they may move while the state changes.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from trek.errors import InputError, OutsideError, TrekError
from trek.ps.changes import Change, prepare, push_of
from trek.ps.figures import Latencies
from trek.ps.journal import Journal
from trek.ps.protocol import messages as pb
from trek.ps.protocol.tensors import Attachments, Bytes, array_of
from trek.ps.server_state import Push, ServerState
from trek.ps.snapshot import read_snapshot, write_snapshot
from trek.ps.snapshot_files import Cut, discard_snapshot, publish_snapshot
from trek.ps.state_lock import StateLock
from trek.ps.table import as_tensor

logger = logging.getLogger(__name__)
Answer = tuple[pb.Envelope, Attachments | None]
_DONE = pb.Envelope(done=pb.Done())
_SHARED = "pull_embedding_vector"
_ANSWERED_AFTER_MOVE = {"stats", "move", "restore"}
_MOVED = "the parameters of this server are on other ones now"


class _Moved(Exception):
    """The state is on other servers."""


class Service:
    """The requests of `pserver.proto`. Safe to call from any thread."""

    def __init__(
        self,
        *,
        folder: Path | None = None,
        journal: Journal | None = None,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """`folder` is for rows that do not fit into memory. Without a journal, a killed server loses everything.

        `on_failure` is called when the state was damaged and every request fails from then on: see `failure`.
        """
        self._lock = StateLock()
        self._folder = folder
        self._journal = journal
        self._held_until_s = 0.0
        self._allowed: dict[str, int] = {}
        self._latencies = Latencies()
        self._is_closed = False
        self._on_failure = on_failure
        self.failure = ""
        """Why the state cannot be trusted any more."""
        self._num_states = 0
        self._state = ServerState(folder=self._rows_folder())
        self.num_replayed = 0
        if journal is not None:
            try:
                self._recover(journal)
            except BaseException:
                self.close()
                raise

    def answer(self, request: pb.Envelope, body: Bytes) -> Answer:
        """The answer to a request; a failure is one, too. The memory of `body` may be used again afterwards."""
        do = request.WhichOneof("message") or ""
        started = time.perf_counter()
        try:
            return self._answer(do, request, body)
        except _Moved:
            return pb.Envelope(failure=pb.Failure(message=_MOVED, moved_to=self._state.moved_to)), None
        except TrekError as error:
            is_input = isinstance(error, InputError)
            return pb.Envelope(failure=pb.Failure(message=str(error), is_input=is_input)), None
        except EOFError:
            raise
        except Exception as error:
            logger.exception("the request %r failed", do)
            said = f"the server failed at the request {do!r}: {type(error).__name__}: {error}."
            return pb.Envelope(failure=pb.Failure(message=said)), None
        finally:
            self._latencies.add(do, time.perf_counter() - started)

    def close(self) -> None:
        """Release whoever waits, and close the files."""
        with self._lock.writing():
            self._is_closed = True
            self._lock.notify_all()
            if self._journal is not None:
                self._journal.close()
            self._state.close()

    def _answer(self, do: str, request: pb.Envelope, body: Bytes) -> Answer:
        change: Callable[..., Answer] | None = getattr(self, f"_change_{do}", None)
        handler: Callable[..., Answer] | None = getattr(self, f"_do_{do}", None)
        if change is None and handler is None:
            raise InputError(f"a parameter server does not know the request {do!r}.")
        with self._lock.reading() if do == _SHARED else self._lock.writing():
            self._check_place(do)
            if change is not None:
                return change(request, body)
            assert handler is not None
            return handler(getattr(request, do), body)

    # -- changes, under the lock: checked, written to the journal, applied

    def _commit(self, request: pb.Envelope, body: Bytes, change: Change) -> None:
        """Make the change of a request, or raise and leave the state as it is."""
        if self._journal is not None:
            try:
                self._journal.append(request, body)
            except BaseException:
                change.discard()
                raise
        self._apply(change)
        self._lock.notify_all()

    def _apply(self, change: Change) -> None:
        try:
            change.apply()
        except BaseException as error:
            self.failure = (
                f"the server failed while it applied a request ({type(error).__name__}: {error}), and has only a part "
                "of it. Start the server again: with a journal it comes back without that request, else restore a "
                "checkpoint."
            )
            if self._journal is not None:
                self._journal.take_back()
            self._on_failure()
            raise OutsideError(self.failure) from error

    def _change_push_model(self, request: pb.Envelope, body: Bytes) -> Answer:
        was_initialized = self._state.is_initialized
        self._commit(request, body, prepare(self._state, request, body))
        reply = pb.PushModelResponse(was_initialized=was_initialized, version=self._state.version)
        return pb.Envelope(pushed_model=reply), None

    def _change_push_gradient(self, request: pb.Envelope, body: Bytes) -> Answer:
        push = push_of(request.push_gradient, body)
        self._wait_while_held(push)
        self._check_place("push_gradient")
        verdict = self._state.judge(push)
        if verdict == "apply":
            self._commit(request, body, Change(lambda: self._state.apply(push)))
            self._shorten_journal()
        elif verdict == "rejected":
            self._state.num_rejected += 1
        reply = pb.PushGradientResponse(
            accepted=verdict != "rejected", version=self._state.version, is_repeated=verdict == "repeated"
        )
        return pb.Envelope(pushed=reply), None

    def _change_move(self, request: pb.Envelope, body: Bytes) -> Answer:
        if request.move.must_be_held and time.monotonic() >= self._held_until_s:
            raise OutsideError("the server was not held any more, and may have taken pushes: move it again.")
        self._commit(request, body, prepare(self._state, request, body))
        self._release()
        return _DONE, None

    def _change_progress(self, request: pb.Envelope, body: Bytes) -> Answer:
        if request.progress.forget_prefix:
            self._commit(request, body, prepare(self._state, request, body))
        return pb.Envelope(made=self._progress(request.progress.prefix)), None

    def _change(self, request: pb.Envelope, body: Bytes) -> Answer:
        self._commit(request, body, prepare(self._state, request, body))
        return _DONE, None

    _change_push_embedding_table_infos = _change_put_model = _change_push_table = _change_flush = _change

    # -- requests, under the lock

    def _do_pull_variable(self, wanted: pb.PullModelRequest, body: Bytes) -> Answer:
        del body
        state = self._state
        if wanted.min_version > state.version:
            self._lock.wait_for(
                lambda: self._is_closed or self._state.version >= wanted.min_version, wanted.wait_ms / 1e3
            )
            state = self._state
        attached = Attachments()
        changed = state.changed_since(wanted.version) if state.version >= wanted.min_version else {}
        # Copied under the lock: it is sent after it.
        dense = [attached.add(one.value.clone(), name=key[0], offset=key[1]) for key, one in changed.items()]
        reply = pb.PullModelResponse(initialized=state.is_initialized, version=state.version, dense=dense)
        if wanted.with_state:
            for (name, offset), one in changed.items():
                slots = {slot: value for slot, value in one.state.items() if isinstance(value, torch.Tensor)}
                reply.state.extend(
                    attached.add(value.clone(), name=name, offset=offset, slot=slot) for slot, value in slots.items()
                )
        return pb.Envelope(model=reply), attached

    def _do_pull_embedding_vector(self, wanted: pb.PullEmbeddingVectorRequest, body: Bytes) -> Answer:
        ids = array_of(wanted.ids, body)
        table = self._state.table(wanted.name)
        if wanted.ids.dtype != pb.INT64 or ids.ndim != 1:
            raise InputError(f"ids must be a list of int64, got shape {ids.shape}.")
        attached = Attachments()
        vectors = attached.add(as_tensor(table.pull(ids), table.spec.dtype))
        return pb.Envelope(vectors=vectors), attached

    def _do_pull_table(self, wanted: pb.PullTableRequest, body: Bytes) -> Answer:
        del body
        table = self._state.table(wanted.name)
        part, after = table.portion(since=wanted.since, start=wanted.start, max_rows=wanted.max_rows)
        attached = Attachments()
        rows = pb.Rows(
            table=wanted.name,
            ids=attached.add(torch.from_numpy(part.ids)),
            values=attached.add(part.values),
            step=part.step,
            next=after,
        )
        if wanted.with_slots:
            rows.slots.extend(attached.add(block, name=name) for name, block in part.slots.items())
        return pb.Envelope(rows=rows), attached

    def _do_hold(self, request: pb.HoldRequest, body: Bytes) -> Answer:
        del body
        self._release()
        if request.limit_ms > 0:
            self._held_until_s = time.monotonic() + request.limit_ms / 1e3
        self._allowed = {}
        return pb.Envelope(made=self._progress("")), None

    def _do_checkpoint(self, request: pb.CheckpointRequest, body: Bytes) -> Answer:
        """Let those pushes in that other servers have applied, write, and take pushes again.

        What is written of several servers is published, or discarded, by another request.
        """
        del body
        folder, cut = Path(request.path), Cut(request.cut, request.num_servers)
        if request.publishes or request.discards:
            finish = publish_snapshot if request.publishes else discard_snapshot
            finish(folder, server=request.server, cut=cut)
            return _DONE, None
        self._allowed = dict(request.until.sequences)
        self._lock.notify_all()
        try:
            self._lock.wait_for(lambda: self._is_closed or self._has_reached(self._allowed), request.wait_ms / 1e3)
            if not self._has_reached(self._allowed):
                raise OutsideError("a push that reached some of the servers did not reach this one in time.")
            write_snapshot(self._state, folder, server=request.server, cut=cut)
        except BaseException:
            self._release()
            raise
        if not request.stay_held:
            self._release()
        return _DONE, None

    def _do_restore(self, request: pb.RestoreRequest, body: Bytes) -> Answer:
        del body
        place = {"server": request.server, "num_servers": request.num_servers}
        restored = read_snapshot(Path(request.path), spill=self._rows_folder(), **place)
        try:
            if self._journal is not None:
                self._journal.begin_anew(lambda path: write_snapshot(restored, path, server=0))
        except BaseException:
            restored.close()
            raise
        self._state.close()
        self._state = restored
        self._lock.notify_all()
        return _DONE, None

    def figures(self) -> dict[str, Any]:
        """Rows, bytes, versions, staleness and latencies."""
        with self._lock.writing():
            return self._figures()

    def _do_stats(self, request: pb.StatsRequest, body: Bytes) -> Answer:
        del request, body
        return pb.Envelope(figures=pb.Stats(document=json.dumps(self._figures()))), None

    def _figures(self) -> dict[str, Any]:
        state = self._state
        tables = {
            name: {"rows": len(t), "bytes": t.num_bytes, "spilled": t.num_spilled, "evicted": t.num_evicted}
            for name, t in state.tables.items()
        }
        return {
            "pid": os.getpid(),
            "version": state.version,
            "dense": {"parameters": len(state.dense), "bytes": sum(one.value.nbytes for one in state.dense.values())},
            "tables": tables,
            "staleness": {str(age): count for age, count in sorted(state.staleness.items())},
            "rejected": state.num_rejected,
            "replayed": self.num_replayed,
            "requests": self._latencies.summary(),
        }

    # -- helpers

    def _rows_folder(self) -> Path | None:
        """A folder for the rows of one more state: while it is read, the one before is still there."""
        self._num_states += 1
        return None if self._folder is None else self._folder / str(self._num_states)

    def _recover(self, journal: Journal) -> None:
        if journal.snapshot is not None:
            self._state = read_snapshot(journal.snapshot, server=0, num_servers=1, spill=self._rows_folder())

        self.num_replayed = journal.replay(lambda request, body: prepare(self._state, request, body).apply())

    def _shorten_journal(self) -> None:
        """Replace a long journal by a snapshot. The pushes in it do not depend on that: it may be tried again later."""
        if self._journal is not None and not self._state.pending:
            num_bytes = sum(table.num_bytes for table in self._state.tables.values())
            if self._journal.is_long(num_bytes):
                try:
                    self._journal.begin_anew(lambda path: write_snapshot(self._state, path, server=0))
                except OutsideError as error:
                    logger.warning("the journal stays as long as it is: %s", error)

    def _wait_while_held(self, push: Push) -> None:
        while (left_s := self._held_until_s - time.monotonic()) > 0:
            if self._lock.wait_for(lambda: self._is_closed or self._is_let_in(push), left_s):
                return

    def _release(self) -> None:
        """Take pushes again, or tell those that waited where to go."""
        self._held_until_s = 0.0
        self._lock.notify_all()

    def _check_place(self, do: str) -> None:
        """Raise unless the request is answered here, and now."""
        if self._is_closed:
            raise EOFError  # the connection ends, and the client asks again once there is a server
        if self.failure:
            raise OutsideError(self.failure)
        if self._state.moved_to and do not in _ANSWERED_AFTER_MOVE:
            raise _Moved

    def _is_let_in(self, push: Push) -> bool:
        """Whether a held server takes a push: one that other servers have applied already."""
        return not self._held_until_s or push.sequence <= self._allowed.get(push.source, 0)

    def _has_reached(self, sequences: dict[str, int]) -> bool:
        return all(self._state.ledger.reached(source) >= last for source, last in sequences.items())

    def _progress(self, prefix: str) -> pb.Progress:
        return pb.Progress(sequences=self._state.ledger.sequences(prefix), version=self._state.version)
