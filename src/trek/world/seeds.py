"""Seeds and states of the global random generators: Python's, NumPy's, torch's on every device.

States are plain numbers and tensors, so a checkpoint can hold them without pickle. Loaders keep their own order:
see `trek.data`.
"""

from __future__ import annotations

import hashlib
import random
from typing import Any

from trek.errors import InputError

MAX_SEED = 2**63 - 1


def seed_everything(seed: int, *, rank: int = 0) -> None:
    """Seed Python, NumPy and torch. Rank 0 takes `seed` itself; every other rank a stream of its own."""
    import numpy as np
    import torch

    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MAX_SEED:
        raise InputError(f"a seed must be a whole number from 0 to 2**63 - 1, got {seed!r}.")
    own = seed if rank == 0 else _mix(seed, rank)
    random.seed(own)
    np.random.seed(own % 2**32)
    torch.manual_seed(own)


def random_state() -> dict[str, Any]:
    """The state of every global generator: lists of numbers for Python and NumPy, byte tensors for torch."""
    import numpy as np
    import torch

    version, internal, gauss = random.getstate()
    algorithm, keys, position, has_gauss, cached = np.random.get_state()
    return {
        "python": [version, list(internal), gauss],
        "numpy": [str(algorithm), np.asarray(keys).tolist(), int(position), int(has_gauss), float(cached)],
        "torch": torch.get_rng_state(),
        # Reading a generator's state makes no context on the device, so all devices may be asked.
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def restore_random_state(state: dict[str, Any]) -> None:
    """Put every generator back to where `random_state` found it. GPUs that no longer exist are skipped."""
    import numpy as np
    import torch

    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    algorithm, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((algorithm, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"])
    num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for index, one in enumerate(state["cuda"][:num_gpus]):
        torch.cuda.set_rng_state(one, index)


def _mix(seed: int, rank: int) -> int:
    digest = hashlib.sha256(f"{seed}:{rank}".encode()).digest()
    return int.from_bytes(digest[:8], "big") & MAX_SEED
