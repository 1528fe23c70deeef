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
def listen(host: str, port: int) -> Iterator[tuple[str, Callable[[ASGIApp], None]]]:
    """Bind a socket; yields its URL and a function that serves an app there until Ctrl-C."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"serve: cannot listen at {host}, port {port}: {error}. Try another --port, or 0") from None
    with bound:
        name = socket.gethostname() if host in ALL_INTERFACES else f"[{host}]" if ":" in host else host
        yield f"http://{name}:{bound.getsockname()[1]}/", lambda app: _run(server_for(app), bound)


def server_for(app: ASGIApp) -> uvicorn.Server:
    """A uvicorn server without access log."""
    return uvicorn.Server(
        uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", limit_concurrency=MAX_CONCURRENT)
    )


def _run(server: uvicorn.Server, bound: socket.socket) -> None:
    with contextlib.suppress(KeyboardInterrupt):  # the usual end
        server.run(sockets=[bound])
