"""A local web page with the predictions of a run's models, before and after each task, for an image.

Served by Starlette on uvicorn, two small packages in pure Python. Gradio would be far larger, and its pages load files
from other hosts. No image leaves the machine, and uploads are not stored.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from tasso.errors import ConfigError, install
from tasso.training.run import Run

MIB = 1024 * 1024


def serve_run(
    path: Path, host: str = "127.0.0.1", port: int = 8000, max_mib: float = 20.0, device: str = "auto"
) -> None:
    """Serve until Ctrl-C."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise ConfigError(f"serve: needs starlette and uvicorn: {install('serve')}") from None
    from tasso.serve.app import make_app
    from tasso.serve.listen import listen
    from tasso.serve.models import load_models

    if not 0 < max_mib <= 1024:
        raise ConfigError(f"max_mib: must lie in 0 … 1024, not {max_mib}")
    with listen(host, port) as (url, run_app):  # before loading the models: the port may be in use
        models = load_models(Run(path, device=device))
        app = make_app(models, host, int(max_mib * MIB))
        with contextlib.suppress(KeyboardInterrupt):  # may come before the server handles signals
            run_app(app, lambda: print(f"{url}  (Ctrl-C ends it)", flush=True))
