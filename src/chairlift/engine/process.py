"""The engine in a process of its own, as its parent sees it."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Callable
from typing import Any

from chairlift import errors
from chairlift.engine.child import EngineChild
from chairlift.engine.frames import FrameDecoder, encode_frame
from chairlift.engine.messages import Command, EngineInfo, EngineListener, Inspection, Stop
from chairlift.engine.wire import (
    LoopDied,
    PackedStep,
    PhaseDone,
    StartFailed,
    unpack_step,
)
from chairlift.errors import ChairliftError, EngineDeadError, EngineError

_EXIT_TIMEOUT_S = 10.0
_REAP_TIMEOUT_S = 1.0


class EngineProcess:
    """The engine loop in a child process, reached over a socket.

    Args:
        child: Owned from here on.
    """

    def __init__(self, child: EngineChild) -> None:
        self._process = child.process
        self._socket = child.connection
        self._protocol: _Connection | None = None

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._process.pid

    async def start(self, on_phase: Callable[[str, float], None] | None = None) -> EngineInfo:
        """Wait until the child, which has been configured, can compute.

        Args:
            on_phase: Told each part of the child's start, with its seconds, as it ends.

        Raises:
            ConfigError: The configuration does not go with the model or the machine.
            ModelLoadError: The model cannot be loaded.
            EngineError: Anything else went wrong in the child.
        """
        loop = asyncio.get_running_loop()
        protocol = _Connection(loop.create_future(), on_phase, self._describe_exit)
        self._protocol = protocol
        await loop.create_connection(lambda: protocol, sock=self._socket)
        return await protocol.ready

    def attach(self, listener: EngineListener) -> None:
        """As :class:`~chairlift.engine.messages.EngineTransport`; after :meth:`start`."""
        if self._protocol is not None:
            self._protocol.attach(listener)

    def send(self, command: Command) -> None:
        """As :class:`~chairlift.engine.messages.EngineTransport`."""
        if self._protocol is not None:
            self._protocol.write(command)

    async def close(self) -> None:
        """As :class:`~chairlift.engine.messages.EngineTransport`; kills what does not end."""
        if self._protocol is not None:
            self._protocol.close()
        else:
            self._socket.close()
        try:
            await asyncio.to_thread(self._process.wait, _EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)

    def kill(self) -> None:
        """End the child at once, without a word."""
        self._process.kill()

    def _describe_exit(self) -> str:
        """How the child ended, its socket having closed."""
        try:
            code = self._process.wait(_REAP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return "the engine process closed its connection"
        if code < 0:
            return f"the engine process was killed by {_signal_name(-code)}"
        return f"the engine process ended with exit code {code}"


class _Connection(asyncio.Protocol):
    """Both directions of the socket, on the event loop."""

    def __init__(
        self,
        ready: asyncio.Future[EngineInfo],
        on_phase: Callable[[str, float], None] | None,
        describe_exit: Callable[[], str],
    ) -> None:
        self.ready = ready
        self._listener: EngineListener | None = None
        self._on_phase = on_phase
        self._describe_exit = describe_exit
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self._is_closing = False
        self._last_words: str | None = None
        self._death: EngineDeadError | None = None

    def attach(self, listener: EngineListener) -> None:
        """Tell this listener from here on, and of a death that came before."""
        self._listener = listener
        if self._death is not None:
            listener.on_death(self._death)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        for message in self._decoder.feed(data):
            if isinstance(message, PackedStep):
                if self._listener is not None:
                    self._listener.on_step(unpack_step(message))
            else:
                self._on_other(message)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._is_closing:
            if not self.ready.done():
                self.ready.cancel()
            return
        self._is_closing = True
        reason = self._last_words or self._describe_exit()
        if not self.ready.done():
            self.ready.set_exception(EngineError(f"the engine did not start: {reason}"))
            return
        self._death = EngineDeadError(f"the engine has died: {reason}")
        if self._listener is not None:
            self._listener.on_death(self._death)

    def write(self, message: object) -> None:
        """Send a message; kept by the event loop while the child is computing."""
        if self._transport is not None:
            self._transport.write(encode_frame(message))

    def close(self) -> None:
        """Tell the child to end; nothing that it still says is heard."""
        self._is_closing = True
        if self._transport is not None:
            self._transport.write(encode_frame(Stop()))
            self._transport.close()

    def _on_other(self, message: Any) -> None:
        if isinstance(message, PhaseDone):
            if self._on_phase is not None:
                self._on_phase(message.name, message.seconds)
        elif isinstance(message, EngineInfo):
            if not self.ready.done():
                self.ready.set_result(message)
        elif isinstance(message, Inspection):
            if self._listener is not None:
                self._listener.on_inspection(message)
        elif isinstance(message, LoopDied):
            self._last_words = message.message
        elif isinstance(message, StartFailed) and not self.ready.done():
            self._is_closing = True
            self.ready.set_exception(_start_error(message))


def _start_error(failed: StartFailed) -> ChairliftError:
    kind = getattr(errors, failed.kind, EngineError)
    try:
        error: ChairliftError = kind(failed.message)
    except TypeError:  # a kind that needs more than a message
        error = EngineError(failed.message)
    return error


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
