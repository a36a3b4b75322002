"""`/metrics`: figures about the control plane in the format of Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from fastapi.responses import PlainTextResponse

from trek.control.services import Services
from trek.master.auth import Auth

_STATES = ("queued", "running", "paused", "completed", "errored", "killed")


def make_router(services: Services, auth: Auth) -> APIRouter:
    """Viewers read; Prometheus is configured to send a token."""
    router, cluster = APIRouter(tags=["cluster"]), services.cluster

    @router.get("/metrics", response_class=PlainTextResponse, dependencies=[Depends(auth.at_least("viewer"))])
    def get_metrics() -> str:
        return _text(cluster.counts(), slots=cluster.num_slots, free=cluster.num_free_slots)

    return router


def _text(counts: dict[str, dict[str, int]], *, slots: int, free: int) -> str:
    lines = []
    for noun in ("experiments", "trials"):
        lines += [f"# HELP trek_{noun} Number of {noun} by state.", f"# TYPE trek_{noun} gauge"]
        lines += [f'trek_{noun}{{state="{state}"}} {counts[noun].get(state, 0)}' for state in _STATES]
    for name, text, value in (
        ("slots", "Number of processes that can train at once.", slots),
        ("free_slots", "Number of slots that no trial holds.", free),
        ("metric_rows", "Number of stored metric rows.", counts["rows"]["metrics"]),
        ("checkpoint_bytes", "Bytes of stored checkpoints.", counts["rows"]["checkpoint_bytes"]),
    ):
        lines += [f"# HELP trek_{name} {text}", f"# TYPE trek_{name} gauge", f"trek_{name} {value}"]
    return "\n".join(lines) + "\n"
