"""A hook of mkdocs: fills in the parts of pages that are generated from the code.

A line `<!-- generated: commands -->` stands for such a part.
"""

from __future__ import annotations

import re
from typing import Any

from commands import command_reference
from config_keys import config_reference, ignored_keys, old_spellings, settings_table
from other_names import names_reference
from public_names import python_reference

GENERATED = {
    "commands": command_reference,
    "config": config_reference,
    "ignored": ignored_keys,
    "old spellings": old_spellings,
    "other projects": names_reference,
    "python": python_reference,
    "settings": settings_table,
}
_MARK = re.compile(r"^<!-- generated: (.+?) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with its generated parts."""
    return _MARK.sub(lambda mark: GENERATED[mark[1]](), markdown)
