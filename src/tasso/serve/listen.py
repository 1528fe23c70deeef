"""The socket and the server loop."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from tasso.errors import ConfigError

ALL_INTERFACES = ("0.0.0.0", "::")
MAX_CONCURRENT = 16  # requests; each may hold a whole upload in memory


@contextlib.contextmanager
def listen(host: str, port: int) -> Iterator[tuple[str, Callable[[ASGIApp, Callable[[], None]], None]]]:
    """Bind a socket; yields its URL and a function that serves an app there until Ctrl-C, and calls another one once
    it does."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"serve: cannot listen at {host}, port {port}: {error}. Try another --port, or 0") from None
    with bound:
        name = socket.gethostname() if host in ALL_INTERFACES else f"[{host}]" if ":" in host else host
        yield f"http://{name}:{bound.getsockname()[1]}/", lambda app, then: _run(server_for(app, then), bound)


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
    return Server(
        uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", limit_concurrency=MAX_CONCURRENT),
        then,
    )


def _run(server: uvicorn.Server, bound: socket.socket) -> None:
    with contextlib.suppress(KeyboardInterrupt):  # the usual end
        server.run(sockets=[bound])
