"""Writes the parts of the pages that are generated from the code: what lies between these two marks.

    <!-- generated: commands -->
    <!-- end of commands -->

The pages are committed with them, so that they can be read without a site. `make references` renews them; a test fails
while one is not what the code says.
"""

from __future__ import annotations

import re
from pathlib import Path

from commands import command_reference
from config_keys import config_reference, ignored_keys, old_spellings, settings_table
from other_names import names_reference
from public_names import python_reference

DOCS = Path(__file__).resolve().parents[1]
GENERATED = {
    "commands": command_reference,
    "config": config_reference,
    "ignored": ignored_keys,
    "old spellings": old_spellings,
    "other projects": names_reference,
    "python": python_reference,
    "settings": settings_table,
}
_PART = re.compile(r"^<!-- generated: (.+?) -->\n.*?^<!-- end of \1 -->$", re.MULTILINE | re.DOTALL)


def renewed(markdown: str) -> str:
    """The page with its generated parts as the code has them now."""
    return _PART.sub(
        lambda part: f"<!-- generated: {part[1]} -->\n\n{GENERATED[part[1]]()}\n\n<!-- end of {part[1]} -->", markdown
    )


if __name__ == "__main__":
    for page in sorted(DOCS.glob("*.md")):
        page.write_text(renewed(page.read_text()))
