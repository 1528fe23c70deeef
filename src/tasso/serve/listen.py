"""The socket and the server loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from tasso.errors import ConfigError

ALL_INTERFACES = ("0.0.0.0", "::")
MAX_CONNECTIONS = 1000  # most of them wait; what uploads hold is limited by the application
HEADER_SECONDS = 10.0  # for a client to say what it wants
END_SECONDS = 3  # for the image that is being classified when the server is to end


@contextlib.contextmanager
def listen(host: str, port: int) -> Iterator[tuple[str, Callable[[ASGIApp, Callable[[], None]], None]]]:
    """Bind a socket; yields its URL and a function that serves an app there until Ctrl-C, and calls another one once
    it does."""
    if not host:
        raise ConfigError("host: give an address: 127.0.0.1 is this machine only, 0.0.0.0 all its networks")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"serve: cannot listen at {host}, port {port}: {error}. Try another --port, or 0") from None
    with bound:
        name = socket.gethostname() if host in ALL_INTERFACES else f"[{host}]" if ":" in host else host
        yield f"http://{name}:{bound.getsockname()[1]}/", lambda app, then: _run(server_for(app, then), bound)


class Connection(H11Protocol):
    """Closed if its client says nothing, and when the server ends."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(HEADER_SECONDS, self._close_if_silent)

    def _close_if_silent(self) -> None:
        if not self.cycle:  # there is no request yet
            self.transport.close()

    def shutdown(self) -> None:
        """Without waiting for the rest of an upload, or for the images before it."""
        self.transport.close()


class Server(uvicorn.Server):
    """Calls a function once it answers requests and Ctrl-C ends it."""

    def __init__(self, config: uvicorn.Config, then: Callable[[], None]) -> None:
        super().__init__(config)
        self.then = then

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.then()


def server_for(app: ASGIApp, then: Callable[[], None] = lambda: None) -> Server:
    """A server without access log."""
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        log_level="warning",
        access_log=False,
        lifespan="off",
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=END_SECONDS,
    )
    return Server(config, then)


def _run(server: uvicorn.Server, bound: socket.socket) -> None:
    with contextlib.suppress(KeyboardInterrupt):  # the usual end
        server.run(sockets=[bound])
