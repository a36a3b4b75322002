"""The outcome of one process of a gang, written by the process and returned through the gang."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

import trek.errors
from trek.engines import Gang
from trek.engines.member_folder import OUTCOME, MemberFolder
from trek.errors import InvalidHP, OutsideError, TrekError
from trek.train.jobs.hang_report import WAITING, of_traceback
from trek.train.jobs.user_traceback import format_user_traceback

Kind = Literal["done", "user", "input", "outside", "rejected"]
MAX_TEXT_CHARS = 65_536
HANG = "Hang"
"""The `error` of a rank that ended itself since no rank went on."""
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
    returned: Any = None
    """What the leader of a job returned, which must be JSON."""
    status: int | None = None
    """What the process exits with, if the user's code has chosen that."""
    time_s: float = field(default_factory=time.time)

    @classmethod
    def of_error(cls, rank: int, error: BaseException) -> RankOutcome:
        """Whose error it was: the user's unless Trek raised it itself."""
        if isinstance(error, InvalidHP):
            return cls(rank, "rejected", str(error), error=type(error).__name__)
        if isinstance(error, TrekError):
            kind: Kind = {1: "user", 2: "input"}.get(error.exit_code, "outside")  # type: ignore[assignment]
            text = getattr(error, "traceback_text", "")
            named = next(one.__name__ for one in type(error).__mro__ if hasattr(trek.errors, one.__name__))
            return cls(rank, kind, str(error), text, error=named)
        if isinstance(error, SystemExit):
            return cls(rank, "user", _exit_message(error), format_user_traceback(error), status=_exit_status(error))
        message = "".join(traceback.format_exception_only(error)).strip()
        return cls(rank, "user", message, format_user_traceback(error), where=of_traceback(error.__traceback__))

    @property
    def exit_code(self) -> int:
        """What the process exits with."""
        return EXIT_CODES[self.kind] if self.status is None else self.status

    @property
    def is_hang(self) -> bool:
        """Whether the rank ended itself since no rank went on; see `hang_watch`."""
        return self.error == HANG

    @property
    def is_consequence(self) -> bool:
        """Whether it ended inside a collective, as a rank does when another one leaves."""
        return self.kind == "user" and self.where.startswith(WAITING)

    def named_error(self) -> Exception:
        """The error that Trek or the Trial raised, recreated."""
        kind: type[Exception] = getattr(trek.errors, self.error, OutsideError)
        return kind(self.message)

    def write(self, folder: MemberFolder) -> None:
        """Write the outcome to the folder of this process."""
        folder.write_outcome(asdict(self))

    @classmethod
    def read(cls, folder: MemberFolder) -> RankOutcome | None:
        """The outcome that a process of this member wrote, if any."""
        document = folder.read(OUTCOME)
        try:
            return None if document is None else cls.of_document(json.loads(document))
        except (ValueError, RecursionError):
            return None

    @classmethod
    def of_document(cls, document: Any) -> RankOutcome | None:
        """The outcome in a document; None if it is not one. A process may write anything into its folder."""
        try:
            outcome = _OUTCOME.validate_python(document)
        except ValidationError:
            return None
        return replace(outcome, message=_text(outcome.message), traceback=_text(outcome.traceback))


_OUTCOME = TypeAdapter(RankOutcome)


def _exit_message(error: SystemExit) -> str:
    how = f"code {error.code or 0}" if isinstance(error.code, int | None) else f"code 1, saying {str(error.code)!r},"
    return f"exited with {how} before its function returned. Return instead of exiting."


def _exit_status(error: SystemExit) -> int:
    """As Python has it, but never 0: a rank that left its peers has failed."""
    return error.code & 0xFF or 1 if isinstance(error.code, int) else 1


def _text(text: str) -> str:
    """Text that every database takes."""
    return text[:MAX_TEXT_CHARS].encode("utf-8", errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def read_outcomes(gang: Gang) -> list[RankOutcome]:
    """The outcomes of the processes of `gang` that ended, the earliest first."""
    outcomes = [RankOutcome.of_document(document) for document in gang.outcomes().values()]
    return sorted((one for one in outcomes if one is not None), key=lambda outcome: outcome.time_s)


def find_cause(outcomes: Sequence[RankOutcome]) -> RankOutcome | None:
    """What failed first, if anything did; a rank that only noticed another one leave may have been quicker to say."""
    failed = [outcome for outcome in outcomes if outcome.kind != "done"]
    return next((outcome for outcome in failed if not outcome.is_consequence), next(iter(failed), None))
