"""A place to listen at, and the loop that answers."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from tasso.errors import ConfigError

AT_ONCE = 16  # requests; each may hold a whole file


@contextlib.contextmanager
def listen(host: str, port: int) -> Iterator[tuple[str, Callable[[ASGIApp], None]]]:
    """The address that a browser takes, and a function that answers there until Ctrl-C."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"serve: cannot listen at {host}, port {port}: {error}. Try another --port, or 0") from None
    with bound:
        name = f"[{host}]" if ":" in host else host
        yield f"http://{name}:{bound.getsockname()[1]}/", lambda app: _run(server_for(app), bound)


def server_for(app: ASGIApp) -> uvicorn.Server:
    """uvicorn, quiet: who asks for what is nobody's business."""
    return uvicorn.Server(
        uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", limit_concurrency=AT_ONCE)
    )


def _run(server: uvicorn.Server, bound: socket.socket) -> None:
    with contextlib.suppress(KeyboardInterrupt):  # how it is meant to end
        server.run(sockets=[bound])
