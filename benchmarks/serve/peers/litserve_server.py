"""The network behind LitServe: one worker, one thread of torch. Called with a port and the largest batch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import litserve
import torch
from model_def import make_model


class Api(litserve.LitAPI):
    """Logits of an image."""

    def setup(self, device: str) -> None:
        """Load."""
        torch.set_num_threads(1)
        self.model = make_model().eval()

    def decode_request(self, request, **_):  # LitServe reads annotations, and takes them for those of its route
        """One image."""
        return torch.tensor(request["input_0"])[None]

    def batch(self, inputs: list[torch.Tensor]) -> torch.Tensor:
        """Several images."""
        return torch.stack(inputs)

    def predict(self, x: torch.Tensor, **_: Any) -> torch.Tensor:
        """Logits."""
        with torch.inference_mode():
            return self.model(x if x.ndim == 4 else x[None])

    def unbatch(self, output: torch.Tensor) -> list[torch.Tensor]:
        """Rows."""
        return list(output)

    def encode_response(self, output: torch.Tensor, **_: Any) -> dict[str, list[float]]:
        """JSON."""
        return {"output": output.reshape(-1).tolist()}


if __name__ == "__main__":
    most = int(sys.argv[2])
    api = Api(max_batch_size=most, batch_timeout=0.0) if most > 1 else Api()
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(port=int(sys.argv[1]), host="127.0.0.1", log_level="warning", generate_client_file=False)
