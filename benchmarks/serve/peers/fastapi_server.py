"""The network behind bare FastAPI: one process, one thread of torch. Called with a port."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
import uvicorn
from fastapi import FastAPI
from model_def import make_model
from pydantic import BaseModel

torch.set_num_threads(1)
app, model = FastAPI(), make_model().eval()


class Image(BaseModel):
    """A request."""

    input_0: list[list[float]]


@app.post("/predict")
async def predict(image: Image) -> dict[str, list[float]]:
    """Logits."""
    with torch.inference_mode():
        return {"output": model(torch.tensor(image.input_0)[None, None])[0].tolist()}


uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
