"""Fingerprints: what a result depends on, by content. Equal when it would be the same, different when it may not be.

Code counts by what it does, values by what they hold, files by their contents; libraries count by name. Whatever cannot
be fingerprinted is named, and its fingerprint never comes again, so that nothing is served from a cache by mistake.
"""

from trek.fingerprints.commands import fingerprint_command
from trek.fingerprints.contents import FileFacts, digest_path, digest_place, digest_text, find_change, take_inventory
from trek.fingerprints.fingerprint import Fingerprint, fingerprint, fingerprint_code, fingerprint_value
from trek.fingerprints.naming import source_name

__all__ = [
    "FileFacts",
    "Fingerprint",
    "digest_path",
    "digest_place",
    "digest_text",
    "find_change",
    "fingerprint",
    "fingerprint_code",
    "fingerprint_command",
    "fingerprint_value",
    "source_name",
    "take_inventory",
]
