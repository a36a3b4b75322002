"""`/metrics`: the control plane's own numbers, as Prometheus reads them."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from fastapi.responses import PlainTextResponse

from trek.control.services import Services
from trek.master.auth import Auth

_STATES = ("queued", "running", "paused", "completed", "errored", "killed")


def make_router(services: Services, auth: Auth) -> APIRouter:
    """Anybody who may look; Prometheus sends a token as it does for any target."""
    router = APIRouter(tags=["cluster"])

    @router.get("/metrics", response_class=PlainTextResponse, dependencies=[Depends(auth.at_least("viewer"))])
    def get_metrics() -> str:
        return _text(services.counts(), slots=services.num_slots, free=services.num_free_slots)

    return router


def _text(counts: dict[str, dict[str, int]], *, slots: int, free: int) -> str:
    lines = []
    for noun in ("experiments", "trials"):
        lines += [f"# HELP trek_{noun} How many {noun} are in which state.", f"# TYPE trek_{noun} gauge"]
        lines += [f'trek_{noun}{{state="{state}"}} {counts[noun].get(state, 0)}' for state in _STATES]
    for name, text, value in (
        ("slots", "Processes that can train at once.", slots),
        ("free_slots", "Slots that no trial holds.", free),
        ("metric_rows", "Reported rows of metrics.", counts["rows"]["metrics"]),
        ("checkpoint_bytes", "Bytes of checkpoints that are still there.", counts["rows"]["checkpoint_bytes"]),
    ):
        lines += [f"# HELP trek_{name} {text}", f"# TYPE trek_{name} gauge", f"trek_{name} {value}"]
    return "\n".join(lines) + "\n"
