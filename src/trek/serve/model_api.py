"""The routes that carry no tensors: health, metadata, metrics, reloading; and the OpenAPI page of all routes."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from trek._version import __version__
from trek.errors import InputError
from trek.serve.model_pool import ModelPool
from trek.serve.model_versions import ModelVersions
from trek.serve.serving_metrics import ServingMetrics
from trek.serve.settings import ServeSettings
from trek.serve.tickets import Refused

EXTENSIONS = ["binary_tensor_data", "model_repository"]


class Readiness:
    """Whether the server takes requests."""

    def __init__(self) -> None:
        self.is_draining = False


def make_api(
    versions: ModelVersions, *, settings: ServeSettings, metrics: ServingMetrics, readiness: Readiness
) -> FastAPI:
    """The application."""
    app = FastAPI(title=f"{settings.name}, served by Trek", version=__version__, redoc_url=None)
    _add_health(app, versions, readiness)
    _add_metadata(app, versions, settings)
    _add_repository(app, versions, settings)

    @app.get("/metrics", response_class=PlainTextResponse, summary="Figures for Prometheus")
    async def show_metrics() -> str:
        return metrics.to_text(versions.pools)

    @app.exception_handler(Refused)
    async def refuse(_: Any, error: Refused) -> Response:
        return Response(error.reply.body, error.reply.status, media_type=error.reply.content_type)

    @app.exception_handler(InputError)
    async def reject(_: Any, error: InputError) -> Response:
        return JSONResponse({"error": str(error)}, 400)

    _document_inference(app)
    return app


def _add_health(app: FastAPI, versions: ModelVersions, readiness: Readiness) -> None:
    @app.get("/v2/health/live", summary="Whether the server runs")
    async def live() -> dict[str, bool]:
        return {"live": True}

    @app.get("/v2/health/ready", summary="Whether every version has a worker that answers")
    async def ready() -> Response:
        is_ready = versions.is_ready and not readiness.is_draining
        return JSONResponse({"ready": is_ready}, 200 if is_ready else 503)


def _add_metadata(app: FastAPI, versions: ModelVersions, settings: ServeSettings) -> None:
    def find(model: str, version: str | None) -> ModelPool:
        if model != settings.name:
            raise InputError(f"model {model!r} does not exist. There is: {settings.name}.")
        return versions.find(version or next(iter(versions.pools)))

    def describe(model: str, version: str | None) -> dict[str, Any]:
        pool = find(model, version)
        return {
            "name": settings.name,
            "versions": list(versions.pools) if version is None else [version],
            "platform": "trek_pytorch",
            "inputs": pool.metadata.get("inputs") or [],
            "outputs": pool.metadata.get("outputs") or [],
        }

    def show_ready(model: str, version: str | None) -> Response:
        is_ready = find(model, version).num_ready > 0
        return JSONResponse({"name": model, "ready": is_ready}, 200 if is_ready else 503)

    @app.get("/v2", summary="What the server is")
    async def server() -> dict[str, Any]:
        return {"name": "trek", "version": __version__, "extensions": EXTENSIONS}

    @app.get("/v2/models/{model}", summary="What a model takes and returns")
    async def of_model(model: str) -> dict[str, Any]:
        return describe(model, None)

    @app.get("/v2/models/{model}/versions/{version}", summary="What a version takes and returns")
    async def of_version(model: str, version: str) -> dict[str, Any]:
        return describe(model, version)

    @app.get("/v2/models/{model}/ready", summary="Whether a model answers")
    async def model_ready(model: str) -> Response:
        return show_ready(model, None)

    @app.get("/v2/models/{model}/versions/{version}/ready", summary="Whether a version answers")
    async def version_ready(model: str, version: str) -> Response:
        return show_ready(model, version)


def _add_repository(app: FastAPI, versions: ModelVersions, settings: ServeSettings) -> None:
    @app.post("/v2/repository/index", summary="The versions, and their shares of the requests")
    async def index() -> list[dict[str, Any]]:
        return [
            {
                "name": settings.name,
                "version": version,
                "state": "READY" if pool.num_ready else "UNAVAILABLE",
                "weight": versions.weights[version],
            }
            for version, pool in versions.pools.items()
        ]

    @app.post("/v2/repository/models/{model}/load", summary="Load every version again, from where it is found now")
    async def load(model: str) -> dict[str, Any]:
        if model != settings.name:
            raise InputError(f"model {model!r} does not exist. There is: {settings.name}.")
        for version in list(versions.pools):
            await versions.reload(version)
        return {"name": model, "versions": list(versions.pools)}


def _document_inference(app: FastAPI) -> None:
    """The routes of InferenceApp, which FastAPI never sees, on its page."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        found = make()
        found["paths"].update(_INFERENCE)
        return found

    app.openapi = openapi  # type: ignore[method-assign]


def _operation(summary: str, content: str, *, answer: str | None = None, names: tuple[str, ...] = ()) -> dict[str, Any]:
    errors = {"400": "Invalid request", "429": "Too many requests are waiting", "503": "No worker can answer now"}
    return {
        "post": {
            "summary": summary,
            "parameters": [{"name": n, "in": "path", "required": True, "schema": {"type": "string"}} for n in names],
            "requestBody": {"required": True, "content": {one: {} for one in content.split()}},
            "responses": {
                "200": {"description": "The answer", "content": {one: {} for one in (answer or content).split()}},
                **{status: {"description": text} for status, text in errors.items()},
            },
        }
    }


_JSON, _EVENTS = "application/json", "text/event-stream"
_V2 = f"{_JSON} application/octet-stream"
_PLAIN = f"{_JSON} application/x-npy application/x-npz application/vnd.apache.arrow.stream"
_INFERENCE = {
    "/predict": _operation("Answer rows", _PLAIN),
    "/predict/stream": _operation("Answer one row piece by piece", _JSON, answer=_EVENTS),
    "/v2/models/{model}/infer": _operation("Infer", _V2, names=("model",)),
    "/v2/models/{model}/versions/{version}/infer": _operation("Infer by one version", _V2, names=("model", "version")),
    "/v2/models/{model}/generate_stream": _operation(
        "Answer one row piece by piece", _JSON, answer=_EVENTS, names=("model",)
    ),
    "/v2/models/{model}/versions/{version}/generate_stream": _operation(
        "Answer one row piece by piece, by one version", _JSON, answer=_EVENTS, names=("model", "version")
    ),
}
