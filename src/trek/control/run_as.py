"""RunAs: which user of the operating system trials run as, and with whose rights the files of a trial are touched."""

from __future__ import annotations

import os
import pwd
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from trek.control.file_rights import rights_of
from trek.engines import OsUser
from trek.errors import InputError
from trek.system.urls import is_remote, scheme_of
from trek.train.checkpointing.stores import STORES

OWNER = "owner"
"""The choice that maps the owner of an experiment to the system's user of the same name."""
MIN_OWNER_UID = 1000
"""System accounts below it are never chosen by the name of an owner."""
_NETWORK_STORES = (
    *("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "wasb", "oci", "oss", "hf"),
    *("hdfs", "webhdfs", "http", "https", "ftp", "memory"),
)
"""Schemes whose stores touch no file of this machine, neither directly nor as a cache or an archive of another URL."""


@dataclass(frozen=True)
class RunAs:
    """`owner`, or the name of one user for all trials."""

    choice: str

    def user_of(self, owner: str) -> OsUser:
        """The user that trials of `owner` run as; InputError if there is none, or it must not be used."""
        is_by_owner = self.choice == OWNER
        name = owner if is_by_owner else self.choice
        try:
            found = pwd.getpwnam(name)
        except (KeyError, ValueError):
            whose = f" of {owner!r}" if owner else ""
            raise InputError(
                f"trials{whose} would run as the system's user {name!r}, which does not exist. "
                "Create it with useradd, or start the master with another --run-as."
            ) from None
        if found.pw_uid == 0 or (is_by_owner and found.pw_uid < MIN_OWNER_UID):
            raise InputError(f"trials must not run as {name!r} (uid {found.pw_uid}), which is a system account.")
        groups = tuple(os.getgrouplist(name, found.pw_gid))
        return OsUser(name, uid=found.pw_uid, gid=found.pw_gid, groups=groups)

    def rights_at(self, address: str, *, owner: str) -> AbstractContextManager[None]:
        """A block that touches files of trials of `owner` at `address` with the rights of their user.

        Stores of the network are the master's, with its credentials.
        """
        if is_remote(address):
            check_url(address)
            return nullcontext()
        return rights_of(self.user_of(owner))


def check_url(url: str) -> None:
    """InputError for the URL of a store through which root would touch files of this machine."""
    scheme = scheme_of(url)
    if "::" in url or not (scheme in _NETWORK_STORES or scheme in STORES):
        raise InputError(
            f"checkpoint_storage.url: a master with --run-as cannot use {url!r}, since its store may lead to files of "
            "this machine. Use checkpoint_storage.path for a folder, or the URL of a store such as s3://bucket/runs."
        )
