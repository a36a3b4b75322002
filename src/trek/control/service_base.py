"""What the control plane's services stand on: the store, where files are, and the supervisor to wake."""

from __future__ import annotations

from trek.control.layout import Layout
from trek.control.store import Store
from trek.control.trials.supervisor import Supervisor


class ServiceBase:
    """The parts every service uses."""

    def __init__(self, store: Store, *, layout: Layout, supervisor: Supervisor) -> None:
        self._store = store
        self._layout = layout
        self._supervisor = supervisor
