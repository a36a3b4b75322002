"""Body limits: how large the bodies of the master's routes may be, and how long they may take."""

from __future__ import annotations

import re

from trek.control.checkpoints.trial_checkpoints import MAX_BYTES as MAX_CHECKPOINT_BYTES
from trek.experiments.package import MAX_BYTES
from trek.listening.limited_body import BodyLimit
from trek.train.artifacts import MAX_BYTES as MAX_ARTIFACT_BYTES

_LIMITS: tuple[tuple[str, re.Pattern[str], BodyLimit], ...] = (
    ("POST", re.compile(r"/api/v1/(login|session)"), BodyLimit(16 * 2**10, timeout_s=10.0)),
    ("PUT", re.compile(r"/api/v1/archives/[^/]*"), BodyLimit(MAX_BYTES, timeout_s=600.0)),
    ("PUT", re.compile(r"/api/v1/trials/[^/]*/artifacts"), BodyLimit(MAX_ARTIFACT_BYTES, timeout_s=600.0)),
    ("PUT", re.compile(r"/api/v1/trials/[^/]*/checkpoints/[^/]*"), BodyLimit(MAX_CHECKPOINT_BYTES, timeout_s=7200.0)),
    ("POST", re.compile(r"/api/v1/trials/[^/]*/reports"), BodyLimit(64 * 2**20)),
    ("PUT", re.compile(r"/api/v1/flows/[^/]*/runs/.*"), BodyLimit(32 * 2**20)),
)
_OTHERS = BodyLimit(4 * 2**20)


def body_limit(method: str, path: str) -> BodyLimit:
    """The limit of a route; `path` is without the prefix of a proxy."""
    found = (limit for verb, pattern, limit in _LIMITS if verb == method and pattern.fullmatch(path))
    return next(found, _OTHERS)
