"""What the server answers: the page and its parts, facts about the run, and predictions for an image."""

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
from tasso.serve.models import Models

PAGE = Path(__file__).parent / "page"
PARTS = {"/": "index.html", "/page.css": "page.css", "/page.js": "page.js", "/icon.svg": "icon.svg"}
MOST_PIXELS = 100_000_000
MOST_NAMES, MOST_GUESSES = 1000, 50
EVERYWHERE = ("0.0.0.0", "::")

# The page gets everything from here, and nobody else may put it into theirs.
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


class TooLargeError(TassoError):
    """More was sent than is accepted."""


def make_app(models: Models, host: str, most_bytes: int) -> Starlette:
    """The server's answers."""
    about = {**models.about, "most_bytes": most_bytes}

    async def classify(request: Request) -> Response:
        try:
            among, top = _asked(request.query_params, models)
            content = await _body(request, most_bytes)
            image = await run_in_threadpool(read_upload, content, MOST_PIXELS)
            predictions = await run_in_threadpool(models.predict, image, among, top)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody is there to read it
        except TassoError as error:
            status = {TooLargeError: 413, DataError: 415, ConfigError: 400}.get(type(error), 500)
            # The rest of what is being sent is not read, so this connection cannot be used again.
            return JSONResponse({"error": str(error)}, status, {"connection": "close"})
        columns = [
            {"title": stage.title, "predictions": [guess.to_dict() for guess in column]}
            for stage, column in zip(models.stages, predictions, strict=True)
        ]
        return JSONResponse({"among": str(among), "stages": columns})

    routes = [Route(path, _file(PAGE / name)) for path, name in PARTS.items()]
    routes += [Route("/run.json", lambda request: JSONResponse(about)), Route("/classify", classify, methods=["POST"])]
    # Only under its own name: else a page elsewhere could pass itself off as this machine (DNS rebinding).
    hosts = ["*"] if host in EVERYWHERE else ["127.0.0.1", "localhost", host]
    return Starlette(
        routes=routes, middleware=[Middleware(Careful), Middleware(TrustedHostMiddleware, allowed_hosts=hosts)]
    )


class Careful:
    """Adds the headers to every answer, and refuses what pages of other sites send."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *own]
            await send(message)

        sent_by = dict(scope.get("headers", [])).get(b"sec-fetch-site", b"none")
        if scope["type"] == "http" and scope["method"] == "POST" and sent_by not in (b"none", b"same-origin"):
            await JSONResponse({"error": "sent by another site"}, 403)(scope, receive, send_with_headers)
            return
        await self.app(scope, receive, send_with_headers)


def _file(path: Path) -> Callable[[Request], Response]:
    return lambda request: FileResponse(path)


def _asked(query: QueryParams, models: Models) -> tuple[Candidates, int]:
    """What to choose from, and how many predictions are wanted."""
    classes = None
    if "classes" in query:
        classes = [name for name in re.split(r"[,\n]", query["classes"]) if name.strip()]
        if len(classes) > MOST_NAMES:
            raise ConfigError(f"classes: {len(classes)} names are more than the {MOST_NAMES} that are allowed")
    top = query.get("top", "5")
    if not re.fullmatch(r"[0-9]{1,4}", top) or not 1 <= int(top) <= MOST_GUESSES:
        raise ConfigError(f"top: must lie in 1 … {MOST_GUESSES}")
    return models.candidates(query.get("task"), classes), int(top)


async def _body(request: Request, most: int) -> bytes:
    """What was sent, in memory; reading ends where the limit is passed, whatever was announced."""
    announced = request.headers.get("content-length", "0")
    parts, size = [], int(announced) if announced.isdecimal() else 0
    if size <= most:
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > most:
                break
            parts.append(part)
    if size > most:
        raise TooLargeError(f"the file is larger than the {most / 1024**2:.3g} MiB that are allowed (--max-mib)")
    return b"".join(parts)
