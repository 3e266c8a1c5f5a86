"""From a server's configuration to a running server."""

from __future__ import annotations

from chairlift.cli.progress import ensure_fetched
from chairlift.config import EngineConfig
from chairlift.engine.child import EngineChild
from chairlift.server.settings import ServerSettings


def serve_model(engine: EngineConfig, settings: ServerSettings, child: EngineChild | None) -> None:
    """Fetch the model if needed, and serve it; blocks.

    Args:
        child: The engine's process, if it has been started already; owned from here on.

    Raises:
        ModelLoadError: The model cannot be found, fetched or loaded.
        ChairliftError: As :func:`chairlift.server.run.run_server`.
    """
    ensure_fetched(engine.model.model)
    if child is not None:
        child.configure(engine)
    from chairlift.server.run import run_server

    run_server(engine, settings, child)
