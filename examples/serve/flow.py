"""From training to answers over HTTP as a flow: train, serve, ask.

trek flow run examples/serve/flow.py                        # needs no network
trek flow run examples/serve/flow.py --param port=8765
"""

from __future__ import annotations

import sys
from pathlib import Path

from model_def import Digits

import trek

HERE = Path(__file__).resolve().parent


def fit(*, epochs: int) -> str:
    """Train, and return the folder of the best checkpoint."""
    result = trek.fit(Digits, max_length=trek.epochs(epochs), metric="accuracy", smaller_is_better=False, name="serve")
    return str(result.best_checkpoint.path)


def ask(url: str) -> float:
    """Send all test images to the service; the share that it recognises."""
    rows = trek.data.open("digits", split="test").to_numpy()
    records = [{"image": image.tolist()} for image in rows["image"]]
    found = trek.serve.batch_inference(records, [str(digit) for digit in range(10)], f"{url}/predict", batch_size=30)
    share = float((found["label"] == rows["label"].astype(str)).mean())
    print(f"accuracy {share:.3f}")
    return share


flow = trek.Flow("serve")
epochs = flow.param("epochs", 4, help="number of epochs to train")
port = flow.param("port", 8000, help="the port of the service")

checkpoint = flow.step(fit, epochs=epochs)
service = flow.service(
    "digits",
    [sys.executable, "-m", "trek", "serve", checkpoint, "--code", str(HERE), "--port", port, "--name", "digits"],
    ready=port,
)
accuracy = flow.step(ask, service)

if __name__ == "__main__":
    run = flow.run()
    print(f"accuracy {run[accuracy]:.3f}")
