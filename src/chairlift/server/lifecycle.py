"""When the server ends: drained after a signal, at once after a second or when the engine dies."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn

from chairlift.errors import EngineDeadError
from chairlift.server.context import ServerContext

# How long answers that are complete may take to reach slow clients, once nothing is computed.
_FLUSH_TIMEOUT_S = 5
# How long after the engine's death /health goes on saying so before the process ends.
_DEAD_GRACE_S = 1.0
_DRAIN_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class GracefulServer(uvicorn.Server):
    """A uvicorn server that goes on listening while it drains, and watches the engine.

    SIGTERM or SIGINT: new requests are refused with 503 and running ones finished, for at most
    ``shutdown_timeout_s``; then it ends. A second SIGINT ends it at once.

    Args:
        on_ready: Called when connections are accepted.

    Attributes:
        death: Why the engine died, if that is what ended the server.
        is_interrupted: A second SIGINT ended it.
    """

    def __init__(
        self, config: uvicorn.Config, context: ServerContext, on_ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._context = context
        self._on_ready = on_ready
        self._draining: asyncio.Task[None] | None = None
        self._num_interrupts = 0
        self.death: EngineDeadError | None = None
        self.is_interrupted = False
        config.timeout_graceful_shutdown = _FLUSH_TIMEOUT_S

    async def run_to_end(self, sockets: list[socket.socket]) -> None:
        """Serve until told to end, or until the engine has died."""
        watching = asyncio.ensure_future(self._watch_engine())
        try:
            await self.serve(sockets=sockets)
        finally:
            watching.cancel()
            if self._draining is not None:
                self._draining.cancel()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening (called by uvicorn)."""
        await super().startup(sockets)
        self._on_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals on the event loop while serving (called by uvicorn)."""
        loop = asyncio.get_running_loop()
        for number in _DRAIN_SIGNALS:
            loop.add_signal_handler(number, self.begin_shutdown, number)
        try:
            yield
        finally:
            for number in _DRAIN_SIGNALS:
                loop.remove_signal_handler(number)

    def begin_shutdown(self, number: int) -> None:
        """Drain, or end at once if this is the second SIGINT."""
        self._num_interrupts += number == signal.SIGINT
        if self._num_interrupts > 1:
            self.is_interrupted = True
            self.force_exit = True
            self.should_exit = True
        elif self._draining is None:
            self._context.is_draining = True
            self._draining = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        await self._context.engine.drain(self._context.settings.shutdown_timeout_s)
        self.should_exit = True

    async def _watch_engine(self) -> None:
        death = await self._context.engine.wait_dead()
        if not self.should_exit:
            self.death = death
            await asyncio.sleep(_DEAD_GRACE_S)
            self.should_exit = True
