"""The REST API of a control plane as typed calls."""

import sys

# httpx would load its own command line, and rich and pygments with it: a tenth of a second in every trial and command.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # None says that it cannot be imported
