"""The web application: the page, metadata of the run (`/run.json`), predictions for an image (`/classify`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tasso.data.images.files import read_upload
from tasso.errors import ConfigError, DataError, TassoError
from tasso.evaluation.predict import Candidates
from tasso.serve.listen import ALL_INTERFACES
from tasso.serve.models import Models

PAGE = Path(__file__).parent / "page"
PAGE_FILES = {"/": "index.html", "/page.css": "page.css", "/page.js": "page.js", "/icon.svg": "icon.svg"}
MAX_PIXELS = 100_000_000
MAX_CLASSES, MAX_TOP = 1000, 50

# The page loads everything from this server, and other pages may not embed it.
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


class TooLargeError(TassoError):
    """The upload is larger than allowed."""


def make_app(models: Models, host: str, max_bytes: int) -> Starlette:
    """The application.

    Args:
        models: the models of the run.
        host: the address that the server listens on; requests for other host names are refused.
        max_bytes: largest upload.
    """
    metadata = {**models.metadata, "max_bytes": max_bytes}

    async def classify(request: Request) -> Response:
        try:
            candidates, top = _parse_query(request.query_params, models)
            content = await _read_body(request, max_bytes)
            image = await run_in_threadpool(read_upload, content, MAX_PIXELS)
            predictions = await run_in_threadpool(models.predict, image, candidates, top)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        except TassoError as error:
            status = {TooLargeError: 413, DataError: 415, ConfigError: 400}.get(type(error), 500)
            # The rest of the upload is not read, so the connection cannot be reused.
            return JSONResponse({"error": str(error)}, status, {"connection": "close"})
        columns = [
            {"title": stage.title, "predictions": [prediction.to_dict() for prediction in column]}
            for stage, column in zip(models.stages, predictions, strict=True)
        ]
        return JSONResponse({"candidates": str(candidates), "stages": columns})

    routes = [Route(path, _file(PAGE / name)) for path, name in PAGE_FILES.items()]
    routes += [
        Route("/run.json", lambda request: JSONResponse(metadata)),
        Route("/classify", classify, methods=["POST"]),
    ]
    # Only for its own host names: against DNS rebinding.
    hosts = ["*"] if host in ALL_INTERFACES else ["127.0.0.1", "localhost", host]
    return Starlette(
        routes=routes,
        middleware=[Middleware(SecurityMiddleware), Middleware(TrustedHostMiddleware, allowed_hosts=hosts)],
    )


class SecurityMiddleware:
    """Adds the security headers to every response, and refuses POST requests from other sites."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *added]
            await send(message)

        site = dict(scope.get("headers", [])).get(b"sec-fetch-site", b"none")
        if scope["type"] == "http" and scope["method"] == "POST" and site not in (b"none", b"same-origin"):
            await JSONResponse({"error": "request from another site"}, 403)(scope, receive, send_with_headers)
            return
        await self.app(scope, receive, send_with_headers)


def _file(path: Path) -> Callable[[Request], Response]:
    return lambda request: FileResponse(path)


def _parse_query(query: QueryParams, models: Models) -> tuple[Candidates, int]:
    """The candidate classes, and the number of predictions per model."""
    classes = None
    if "classes" in query:
        classes = [name for name in re.split(r"[,\n]", query["classes"]) if name.strip()]
        if len(classes) > MAX_CLASSES:
            raise ConfigError(f"classes: {len(classes)} names are more than the {MAX_CLASSES} that are allowed")
    top = query.get("top", "5")
    if not re.fullmatch(r"[0-9]{1,4}", top) or not 1 <= int(top) <= MAX_TOP:
        raise ConfigError(f"top: must lie in 1 … {MAX_TOP}")
    return models.candidates(query.get("task"), classes), int(top)


async def _read_body(request: Request, max_bytes: int) -> bytes:
    """The upload, in memory. Reading stops at the limit, whatever content-length says."""
    if request.headers.get("content-type", "").startswith("multipart/"):
        raise ConfigError("the body must be the image file itself, not a form: curl --data-binary @IMAGE, not -F")
    content_length = request.headers.get("content-length", "0")
    chunks, size = [], int(content_length) if content_length.isdecimal() else 0
    if size <= max_bytes:
        size = 0
        async for chunk in request.stream():
            size += len(chunk)
            if size > max_bytes:
                break
            chunks.append(chunk)
    if size > max_bytes:
        raise TooLargeError(f"the file is larger than the {max_bytes / 1024**2:.3g} MiB that are allowed (--max-mib)")
    return b"".join(chunks)
