"""How one process of a gang ended, as it says itself: one small file that whoever watches reads."""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import trek.errors
from trek.errors import InvalidHP, OutsideError, TrekError
from trek.train.jobs.hang_report import WAITING, of_traceback
from trek.train.jobs.user_traceback import format_user_traceback

Kind = Literal["done", "user", "input", "outside", "rejected"]
EXIT_CODES: dict[Kind, int] = {"done": 0, "user": 1, "input": 2, "outside": 3, "rejected": 0}


@dataclass(frozen=True)
class RankOutcome:
    """`done`: trained to its length, or stopped for `stop_reason`. Otherwise whose error it was."""

    rank: int
    kind: Kind
    message: str = ""
    traceback: str = ""
    stop_reason: str = ""
    where: str = ""
    """Where an error came from, in a few words."""
    error: str = ""
    """The class of an error that Trek named."""
    time_s: float = field(default_factory=time.time)

    @classmethod
    def of_error(cls, rank: int, error: BaseException) -> RankOutcome:
        """Whose error it was: the user's unless Trek raised it itself."""
        if isinstance(error, InvalidHP):
            return cls(rank, "rejected", str(error), error=type(error).__name__)
        if isinstance(error, TrekError):
            kind: Kind = {1: "user", 2: "input"}.get(error.exit_code, "outside")  # type: ignore[assignment]
            text = getattr(error, "traceback_text", "")
            return cls(rank, kind, str(error), text, error=type(error).__name__)
        message = "".join(traceback.format_exception_only(error)).strip()
        return cls(rank, "user", message, format_user_traceback(error), where=of_traceback(error.__traceback__))

    @property
    def exit_code(self) -> int:
        """What the process exits with."""
        return EXIT_CODES[self.kind]

    @property
    def is_consequence(self) -> bool:
        """Whether it ended inside a collective, as a rank does when another one leaves."""
        return self.kind == "user" and self.where.startswith(WAITING)

    def named_error(self) -> Exception:
        """The error that Trek or the Trial named, anew."""
        kind: type[Exception] = getattr(trek.errors, self.error, OutsideError)
        return kind(self.message)

    def write(self, folder: Path) -> None:
        """Leave the outcome in `folder`, whole or not at all."""
        path = folder / f"outcome_{self.rank}.json"
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(asdict(self)))
        partial.replace(path)


def read_outcomes(folder: Path) -> list[RankOutcome]:
    """What the processes left in `folder`, the earliest first."""
    outcomes = [RankOutcome(**json.loads(path.read_text())) for path in folder.glob("outcome_*.json")]
    return sorted(outcomes, key=lambda outcome: outcome.time_s)


def find_cause(outcomes: Sequence[RankOutcome]) -> RankOutcome | None:
    """What failed first, if anything did; a rank that only noticed another one leave may have been quicker to say."""
    failed = [outcome for outcome in outcomes if outcome.kind != "done"]
    return next((outcome for outcome in failed if not outcome.is_consequence), next(iter(failed), None))
