"""`pq.utils`: small things that pytorch-quik's scripts use."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping


def sec_str(st: float) -> str:
    """How long ago `st` (of `time.time()`) was, as text: `12.3 seconds`."""
    return f"{time.time() - st:.1f} seconds"


def row_str(dflen: int) -> str:
    """A number of rows in millions, as text: `1.5M rows`."""
    return f"{dflen / 1e6:.1f}M rows"


def indexed_dict(classes: Iterable[str]) -> OrderedDict[int, str]:
    """The names of classes by their index."""
    return OrderedDict(enumerate(classes))


def inverse_dict(dict_direct: Mapping[int, str]) -> OrderedDict[str, int]:
    """Keys by values."""
    return OrderedDict((value, key) for key, value in dict_direct.items())


def txt_format(txt_arr: Iterable[str]) -> str:
    """Texts as the body of a request to a server: `{"instances": [{"data": …}, …]}`."""
    return json.dumps({"instances": [{"data": str(text)} for text in txt_arr]})


def gpus() -> int:
    """The number of GPUs of this machine."""
    import torch

    return torch.cuda.device_count()
