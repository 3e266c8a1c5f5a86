"""``chairlift serve``: the OpenAI-compatible server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from chairlift.cli.arguments import ModelArgument
from chairlift.cli.options import engine_options, server_options
from chairlift.cli.progress import ensure_fetched
from chairlift.config import DEFAULT_MODEL, EngineConfig
from chairlift.engine.child import EngineChild
from chairlift.engine.tenants import read_tenants
from chairlift.server.settings import ServerSettings

TenantsFileOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        envvar="CHAIRLIFT_TENANTS_FILE",
        show_envvar=False,
        help="TOML file of tenants: their API keys, weights and limits.",
        rich_help_panel="Server",
    ),
]


@engine_options()
@server_options()
def serve(
    context: typer.Context,
    *,
    model: ModelArgument = DEFAULT_MODEL,
    tenants_file: TenantsFileOption = None,
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
      chairlift serve --tenants-file tenants.toml --scheduling-policy fair
    """
    engine = config(model)
    if tenants_file is not None:
        tenants = read_tenants(tenants_file)
        settings = replace(settings, tenants=tenants)
        limits = tuple(tenant.scheduler_config for tenant in tenants)
        engine = replace(engine, scheduler=replace(engine.scheduler, tenants=limits))
    ensure_fetched(model)
    child: EngineChild | None = context.obj
    if child is not None:
        child.configure(engine)
    from chairlift.server.run import run_server

    run_server(engine, settings, child)
