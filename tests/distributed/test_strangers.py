"""A job of several processes, and a process beside it that is none of them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import psutil
import pytest

import trek
from trek.errors import OutsideError, TrainingError
from trek.strategies.meeting import check_peers

# It has the port and the number of ranks, and not the secret.
_STRANGER = """
import datetime, sys
import torch.distributed as dist
try:
    store = dist.TCPStore("127.0.0.1", int(sys.argv[1]), 2, False, datetime.timedelta(seconds=3))
    store.set_timeout(datetime.timedelta(seconds=3))
    print("joined", store.list_keys())
except Exception as error:
    print("refused", type(error).__name__)
"""


def _visited(traveler: Any) -> Any:
    output = ""
    if traveler.world.is_leader:
        command = [sys.executable, "-c", _STRANGER, str(traveler.world.master_port)]
        output = subprocess.run(command, env={}, capture_output=True, text=True, check=True).stdout
    listening = [one.laddr.ip for one in psutil.Process().net_connections("tcp") if one.status == "LISTEN"]
    told = traveler.strategy.gather({"listening": listening, "stranger": output})
    assert "refused" in told[0]["stranger"], told
    assert {ip for one in told for ip in one["listening"]} == {"127.0.0.1"}, told


def test_a_stranger_cannot_join_and_nothing_listens_beyond_loopback() -> None:
    """torch's store listened on every interface, and another user joined as rank 1 and ran code in rank 0."""
    trek.run(_visited, workers=2, strategy="ddp")


def _with_another_secret(traveler: Any) -> None:
    own = replace(traveler.world, secret=f"the secret of rank {traveler.world.rank} alone")
    with pytest.raises(OutsideError, match="does not know the secret of this job"):
        check_peers(own, timeout_s=60)
    check_peers(traveler.world, timeout_s=60)


def test_a_connection_of_gloo_is_checked_against_the_secret() -> None:
    """gloo takes whoever connects first for the rank that it waits for."""
    trek.run(_with_another_secret, workers=3, strategy="ddp")


class _Anything:
    pass


def _gathered(traveler: Any) -> None:
    traveler.strategy.gather(_Anything())


def test_what_ranks_exchange_is_plain_data() -> None:
    """Objects were gathered as pickles, which run code in the rank that receives them."""
    with pytest.raises((TrainingError, trek.errors.InputError), match="without pickle"):
        trek.run(_gathered, workers=2, strategy="ddp")
