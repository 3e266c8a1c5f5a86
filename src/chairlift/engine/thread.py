"""The engine loop in a thread of this process, for those who embed the asynchronous engine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread

from chairlift.engine.engine_core import EngineCore
from chairlift.engine.engine_loop import HEARTBEAT_S, run_engine_loop
from chairlift.engine.messages import Command, EngineListener, Inspection, StepBatch, Stop
from chairlift.errors import EngineDeadError

_LOGGER = logging.getLogger(__name__)
_EXIT_TIMEOUT_S = 10.0


class QueueInbox:
    """Commands from another thread of the same process."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Command] = SimpleQueue()

    def put(self, command: Command) -> None:
        """Hand over a command."""
        self._queue.put(command)

    def receive(self, timeout_s: float | None) -> list[Command]:
        """As :class:`~chairlift.engine.engine_loop.Inbox`."""
        commands: list[Command] = []
        try:
            if timeout_s != 0.0:
                commands.append(self._queue.get(timeout=timeout_s))
            while True:
                commands.append(self._queue.get_nowait())
        except Empty:
            return commands


class EngineThread:
    """Runs the engine loop in a daemon thread and tells the listener on its event loop.

    Made on the event loop.

    Args:
        core: Used by the thread alone from :meth:`attach` on.
    """

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._loop = asyncio.get_running_loop()
        self._inbox = QueueInbox()
        self._thread: Thread | None = None

    def attach(self, listener: EngineListener) -> None:
        """As :class:`~chairlift.engine.messages.EngineTransport`; starts the thread."""
        self._thread = Thread(
            target=self._run, args=(listener,), name="chairlift-engine", daemon=True
        )
        self._thread.start()

    def send(self, command: Command) -> None:
        """As :class:`~chairlift.engine.messages.EngineTransport`."""
        self._inbox.put(command)

    async def close(self) -> None:
        """As :class:`~chairlift.engine.messages.EngineTransport`."""
        self._inbox.put(Stop())
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, _EXIT_TIMEOUT_S)

    def _run(self, listener: EngineListener) -> None:
        def send(message: StepBatch | Inspection) -> None:
            if isinstance(message, StepBatch):
                self._call(listener.on_step, message)
            else:
                self._call(listener.on_inspection, message)

        try:
            run_engine_loop(self._core, self._inbox, send, heartbeat_s=HEARTBEAT_S)
        except Exception as error:
            _LOGGER.exception("the engine loop has died")
            reason = f"the engine has died: {type(error).__name__}: {error}"
            self._call(listener.on_death, EngineDeadError(reason))

    def _call(self, function: Callable[..., None], argument: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, argument)
        except RuntimeError:  # the event loop has been closed: nobody is listening
            self._inbox.put(Stop())
