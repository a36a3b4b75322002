"""Which variables of the control plane's own environment its trials inherit. Pure.

A trial gets an address and a token of its own. It never inherits those of the control plane, nor the way to its
database. A trial of the same user inherits everything else: it may need PATH, proxies, credentials of object stores. A
trial of another user inherits only variables that say how programs run on this machine, and those that the
administrator names.
"""

from __future__ import annotations

from collections.abc import Iterable

_FOR_TRIALS = ("TREK_DATA_MIRROR", "TREK_DEVICE", "TREK_FAULTS", "TREK_SSH", "TREK_WARM_DIR", "TREK_WARM_START")
_OF_DATABASES = ("DATABASE_URL", "PGPASSFILE", "PGPASSWORD", "PGSERVICE", "PGSERVICEFILE")
_OF_THE_MACHINE = (
    *("PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "PYTHONPATH", "TREK_DEVICE", "TREK_FAULTS"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NO_PROXY", "no_proxy"),
)
_FAMILIES_OF_THE_MACHINE = ("LC_", "CUDA_", "NVIDIA_", "NCCL_", "GLOO_", "OMP_", "MKL_", "OPENBLAS_", "UCX_", "FI_")


def private_variables(names: Iterable[str]) -> list[str]:
    """The names among `names` that stay with the control plane."""
    return sorted(
        name for name in names if (name.startswith("TREK_") and name not in _FOR_TRIALS) or name in _OF_DATABASES
    )


def shared_variables(names: Iterable[str], *, passed: Iterable[str] = ()) -> list[str]:
    """The names among `names` that trials of other users inherit; `passed` are added to those of the machine."""
    known = {*_OF_THE_MACHINE, *passed}
    return sorted(name for name in names if name in known or name.startswith(_FAMILIES_OF_THE_MACHINE))
