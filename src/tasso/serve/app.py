"""The web application: the page, metadata of the run (`/run.json`), predictions for an image (`/classify`)."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from urllib.parse import urlsplit

from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.datastructures import Headers, QueryParams
from starlette.middleware import Middleware
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
MAX_PIXELS = 40_000_000  # of a decoded image, which takes up to 20 bytes for each, one image at a time
BODY_SECONDS = 30.0  # for a client to send its image
MAX_HELD = 256 * 1024 * 1024  # bytes of all uploads that are in memory
MAX_CLASSES, MAX_TOP = 1000, 50

# The page loads everything from this server, and other pages may not embed it.
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "connection": "close",  # so a connection is one request, and who connects has to say soon what it wants
}


class TooLargeError(TassoError):
    """The upload is larger than allowed."""


class SlowError(TassoError):
    """The upload takes too long."""


class FullError(TassoError):
    """There are more uploads than fit into memory."""


STATUS = {ConfigError: 400, SlowError: 408, TooLargeError: 413, DataError: 415, FullError: 503}


class Uploads:
    """Reads uploads into memory, none larger than `max_bytes`, and all together not larger than MAX_HELD."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes, self.left = max_bytes, max(MAX_HELD, max_bytes)

    @contextlib.asynccontextmanager
    async def body_of(self, request: Request) -> AsyncIterator[bytes]:
        """The upload. Reading stops at the limit, whatever content-length says."""
        if request.headers.get("content-type", "").startswith("multipart/"):
            raise ConfigError("the body must be the image file itself, not a form: curl --data-binary @IMAGE, not -F")
        chunks, size = [], 0
        content_length = request.headers.get("content-length", "0")
        # Python refuses to read longer ones, which are too large in any case.
        self._check(int(content_length[:20]) if content_length.isdecimal() else 0)
        try:
            async with asyncio.timeout(BODY_SECONDS) as waiting:
                async for chunk in request.stream():
                    self._check(size + len(chunk))
                    if len(chunk) > self.left:
                        raise FullError("the server has too many uploads at the moment; try again")
                    size += len(chunk)
                    self.left -= len(chunk)
                    chunks.append(chunk)
            content = b"".join(chunks)
            chunks.clear()
            yield content
        except TimeoutError:
            if not waiting.expired():
                raise
            raise SlowError(f"the image did not come within {BODY_SECONDS:g} seconds") from None
        finally:
            self.left += size

    def _check(self, size: int) -> None:
        if size > self.max_bytes:
            allowed = f"{self.max_bytes / 1024**2:.3g} MiB"
            raise TooLargeError(f"the file is larger than the {allowed} that are allowed (--max-mib)")


def make_app(models: Models, host: str, max_bytes: int) -> Starlette:
    """The application.

    Args:
        models: the models of the run.
        host: the address that the server listens on; requests for other host names are refused.
        max_bytes: largest upload.
    """
    metadata = {**models.metadata, "max_bytes": max_bytes}
    uploads, one_at_a_time = Uploads(max_bytes), asyncio.Lock()

    async def classify(request: Request) -> Response:
        try:
            candidates, top = _parse_query(request.query_params, models)
            async with uploads.body_of(request) as content, one_at_a_time:
                if await request.is_disconnected():
                    raise ClientDisconnect
                predictions = await run_sync(
                    lambda: models.predict(read_upload(content, MAX_PIXELS), candidates, top), abandon_on_cancel=True
                )
        except (ClientDisconnect, asyncio.CancelledError):  # the latter when the server ends
            return Response(status_code=400)  # nobody reads it
        except TassoError as error:
            return JSONResponse({"error": str(error)}, STATUS.get(type(error), 500))
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
    hosts = None if host in ALL_INTERFACES else {"127.0.0.1", "::1", "localhost", host.lower()}
    return Starlette(routes=routes, middleware=[Middleware(SecurityMiddleware, hosts=hosts)])


class SecurityMiddleware:
    """Adds the security headers to every response, and refuses requests for other hosts and POST requests from other
    sites."""

    def __init__(self, app: ASGIApp, hosts: set[str] | None) -> None:
        """`hosts`: those that requests may be for, against DNS rebinding; None: all."""
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *added]
            await send(message)

        headers = Headers(scope=scope)
        if self.hosts is not None and _host_of(headers.get("host", "")) not in self.hosts:
            refusal = JSONResponse({"error": "request for another host"}, 400)
            await refusal(scope, receive, send_with_headers)
        elif scope["method"] == "POST" and _is_foreign(headers):
            refusal = JSONResponse({"error": "request from another site"}, 403)
            await refusal(scope, receive, send_with_headers)
        else:
            await self.app(scope, receive, send_with_headers)


def _host_of(address: str) -> str:
    """`[::1]:8000` is `::1`."""
    try:
        return urlsplit(f"//{address}").hostname or ""
    except ValueError:
        return ""


def _is_foreign(headers: Headers) -> bool:
    """Does another site's page send this? Browsers say so in one way or another; programs send neither header."""
    site, origin = headers.get("sec-fetch-site", "none"), headers.get("origin")
    own = [f"{scheme}://{headers.get('host', '')}".lower() for scheme in ("http", "https")]
    return site not in ("none", "same-origin") or (origin is not None and origin.lower() not in own)


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
