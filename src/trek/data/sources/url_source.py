"""UrlSource: rows behind URLs of a scheme of its own, such as a database. Other packages add them by scheme.

Files behind URLs need none: every scheme that no package has registered is opened with fsspec, see `files`.
"""

from __future__ import annotations

from abc import abstractmethod

from trek.data.plans.plan import Source
from trek.registry import Registry


class UrlSource(Source):
    """A Source that `trek.data.open` makes of a URL. The contract is that of `Source`."""

    @classmethod
    @abstractmethod
    def open(cls, url: str) -> UrlSource:
        """The rows at `url`; raises InputError for a URL that is wrong, DataUnavailable where nothing answers."""


SOURCES: Registry[type[UrlSource]] = Registry(
    "sources", {}, word="data source", base="trek.data.sources.url_source:UrlSource"
)
"""By the scheme of their URLs, in lower case."""
