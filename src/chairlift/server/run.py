"""``run_server``: engine process, HTTP server, and what is printed about them.

Imported by the command line before anything is known to be in order, so what takes long to import
is imported while the engine process is already loading the model.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from chairlift.config import EngineConfig
from chairlift.engine.async_engine import AsyncEngine
from chairlift.engine.child import EngineChild
from chairlift.engine.front import Front
from chairlift.engine.start import StartReport
from chairlift.process_memory import resident_bytes
from chairlift.server.listening import bind, url_of
from chairlift.server.process_start import process_started_s
from chairlift.server.settings import ServerSettings

if TYPE_CHECKING:
    from chairlift.server.lifecycle import GracefulServer

_BACKLOG = 2048
# Longer than the pauses of usual clients and proxies, which would otherwise send a request on a
# connection that is just being closed.
_KEEP_ALIVE_S = 75


def run_server(
    config: EngineConfig, settings: ServerSettings, child: EngineChild | None = None
) -> None:
    """Serve until a signal ends it; blocks.

    Args:
        child: The engine's process, if it has been started already; owned from here on.

    Raises:
        ConfigError: The address cannot be listened on, or the configuration does not go with the
            model or the machine.
        ModelLoadError: The model cannot be loaded.
        EngineDeadError: The engine process died.
        KeyboardInterrupt: A second SIGINT ended it at once, or the first before it was ready.
    """
    listening = bind(settings)
    with listening, asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(config, settings, listening, child))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not available on every platform
        return None
    return uvloop.new_event_loop


async def _serve(
    config: EngineConfig,
    settings: ServerSettings,
    listening: socket.socket,
    child: EngineChild | None,
) -> None:
    print(f"Loading {config.model.model}", file=sys.stderr)
    importing = asyncio.ensure_future(asyncio.to_thread(_import_app))
    async with await AsyncEngine.start(config, on_front=_rehearse, child=child) as engine:
        build_server = await importing
        url = url_of(listening)

        def report() -> None:
            gc.freeze()  # what the start made stays: the collector need not look at it again
            gc.enable()
            print(_ready_text(engine, settings, url), flush=True)

        server: GracefulServer = build_server(engine, settings, report)
        await server.run_to_end([listening])
    if server.death is not None:
        raise server.death
    if server.is_interrupted:
        raise KeyboardInterrupt


def _import_app() -> Callable[..., Any]:
    import uvicorn

    from chairlift.server.app import create_app
    from chairlift.server.lifecycle import GracefulServer

    def build_server(
        engine: AsyncEngine, settings: ServerSettings, on_ready: Callable[[], None]
    ) -> GracefulServer:
        app = create_app(engine, settings)
        config = uvicorn.Config(
            app,
            http="auto",
            ws="none",
            lifespan="off",
            log_level="info" if settings.access_log else "warning",
            access_log=settings.access_log,
            server_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_S,
        )
        return GracefulServer(config, app.state.context, on_ready)

    return build_server


def _ready_text(engine: AsyncEngine, settings: ServerSettings, url: str) -> str:
    info = engine.info
    names = settings.served_model_name or (engine.model_name,)
    key = ' -H "Authorization: Bearer $API_KEY"' if settings.api_key or settings.tenants else ""
    body = f'{{"model": "{names[0]}", "messages": [{{"role": "user", "content": "Hello!"}}]}}'
    ready_s, phases = _start_times(engine.start_report)
    return "\n".join(
        (
            f"Serving {', '.join(names)}: weights {info.quantization} computed in {info.dtype}, "
            f"{info.num_threads} threads, {info.isa}",
            f"KV pool: {info.limits.num_kv_blocks} blocks of {info.limits.block_size} tokens "
            f"in {info.kv_cache_dtype} ({_mib(info.kv_pool_bytes)}, {info.kv_pool_reason}); "
            f"a request may have {info.limits.max_total_tokens} tokens",
            *_swap_text(engine),
            _memory_text(engine),
            f"Ready in {ready_s:.2f} s: {phases}",
            f"Web: {url}/ (API reference: {url}/docs)",
            f"API: {url}/v1",
            f"Try: curl {url}/v1/chat/completions{key} -H 'Content-Type: application/json' "
            f"-d '{body}'",
        )
    )


def _swap_text(engine: AsyncEngine) -> list[str]:
    limits = engine.info.limits
    if not limits.num_swap_blocks:
        return []
    return [
        f"Swap space: {limits.num_swap_blocks} KV blocks, {limits.swap_block_s * 1e3:.2g} ms to "
        "copy one"
    ]


def _memory_text(engine: AsyncEngine) -> str:
    """What both processes will hold, which is less as long as the pool has not been filled."""
    info = engine.info
    parts = {
        "weights": info.weight_bytes,
        "KV pool": info.kv_pool_bytes,
        "engine": info.other_bytes,
        "HTTP process": resident_bytes(),
    }
    shown = ", ".join(f"{name} {num_bytes / 2**20:.0f}" for name, num_bytes in parts.items())
    return f"Memory: {_mib(sum(parts.values()))} once the KV pool is full: {shown}"


def _start_times(report: StartReport) -> tuple[float, str]:
    """Seconds since the start of this process, and the parts that they consist of."""
    now_s = time.monotonic()
    process_s = process_started_s()
    server_s = now_s - report.started_s - report.total_s
    phases = [("python", report.started_s - process_s), *report.phases, ("server", server_s)]
    return now_s - process_s, ", ".join(f"{name} {seconds:.2f}" for name, seconds in phases)


def _rehearse(front: Front) -> None:
    from chairlift.server.rehearsal import rehearse

    rehearse(front)


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:.0f} MiB"
