"""``chairlift serve``: the OpenAI-compatible server."""

from __future__ import annotations

from collections.abc import Callable

from chairlift.cli.arguments import ModelArgument
from chairlift.cli.options import engine_options, server_options
from chairlift.cli.progress import ensure_fetched
from chairlift.config import DEFAULT_MODEL, EngineConfig
from chairlift.server.settings import ServerSettings


@engine_options()
@server_options()
def serve(
    *,
    model: ModelArgument = DEFAULT_MODEL,
    settings: ServerSettings,
    config: Callable[[str], EngineConfig],
) -> None:
    """Serve MODEL over an OpenAI-compatible HTTP API.

    Prints where it listens once it is ready. Ctrl-C or SIGTERM ends it: running requests are
    finished first, a second Ctrl-C ends it at once.

    Every flag but --port can be set in the environment too: --max-num-seqs as
    CHAIRLIFT_MAX_NUM_SEQS, and so on.

    Examples:

    \b
      chairlift serve
      chairlift serve ./model.gguf --port 9000 --max-num-seqs 32
      chairlift serve ./folder --dtype float32 --max-model-len 4096
      chairlift serve --api-key "$KEY" --host 0.0.0.0
    """
    engine = config(model)
    ensure_fetched(model)
    from chairlift.server.run import run_server

    run_server(engine, settings)
