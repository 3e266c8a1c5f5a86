"""The engine process: builds the engine, then runs its loop between a socket and the kernels.

Started by :mod:`chairlift.engine.child` with three arguments: the socket's file descriptor, the
parent's process id, and when the parent started it, in monotonic seconds. It ends when it is told
to, when the other end of the socket closes, and when its parent dies in whatever way.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import math
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

from chairlift import errors
from chairlift.config import EngineConfig
from chairlift.engine.frames import FrameDecoder, encode_frame
from chairlift.engine.messages import Command, StepBatch, Stop
from chairlift.engine.wire import (
    LoopDied,
    PhaseDone,
    StartFailed,
    pack_step,
)

if TYPE_CHECKING:
    from chairlift.engine.engine_core import EngineCore

_LOGGER = logging.getLogger(__name__)
_RECEIVE_BYTES = 1 << 18
_PR_SET_PDEATHSIG = 1
_SENDER_TIMEOUT_S = 5.0


class SocketInbox:
    """Commands from the front's socket; the engine thread reads it between steps."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._decoder = FrameDecoder()
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)

    def receive_config(self) -> EngineConfig | None:
        """The first message; ``None`` if the other end closed before sending it."""
        messages: list[Any] = []
        while not messages:
            data = self._read()
            if not data:
                return None
            messages += self._decoder.feed(data)
        config: EngineConfig = messages[0]
        return config

    def receive(self, timeout_s: float | None) -> list[Command]:
        """As :class:`~chairlift.engine.engine_loop.Inbox`; a closed socket reads as ``Stop``."""
        commands: list[Command] = []
        timeout_ms = None if timeout_s is None else math.ceil(timeout_s * 1000)
        while self._poll.poll(timeout_ms):
            data = self._read()
            if not data:
                return [Stop()]
            commands += self._decoder.feed(data)
            if commands:  # take what else is there, without waiting for more
                timeout_ms = 0
        return commands

    def _read(self) -> bytes:
        """What has come; nothing once the other end has closed, whatever it left unread."""
        try:
            return self._socket.recv(_RECEIVE_BYTES)
        except ConnectionResetError:
            return b""


class Sender:
    """Sends messages from a thread of its own, while the engine computes without the GIL."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._queue: SimpleQueue[object] = SimpleQueue()
        self._thread = Thread(target=self._run, name="chairlift-sender", daemon=True)
        self._thread.start()

    def send(self, message: object) -> None:
        """Queue a message; never blocks."""
        self._queue.put(message)

    def finish(self) -> None:
        """Send what is queued, and end."""
        self._queue.put(None)
        self._thread.join(_SENDER_TIMEOUT_S)

    def _run(self) -> None:
        while (message := self._queue.get()) is not None:
            packed = pack_step(message) if isinstance(message, StepBatch) else message
            try:
                self._socket.sendall(encode_frame(packed))
            except OSError:  # the front is gone, as the inbox will notice
                return


def main(arguments: list[str]) -> int:
    """Run the engine process; returns its exit code."""
    gc.disable()  # until all is made that stays
    connection = socket.socket(fileno=int(arguments[0]))
    parent_pid, started_s = int(arguments[1]), float(arguments[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if not _die_with_parent(parent_pid):
        return 1
    sender = Sender(connection)
    try:
        return _serve(SocketInbox(connection), sender, started_s)
    finally:
        sender.finish()


def _serve(inbox: SocketInbox, sender: Sender, started_s: float) -> int:
    # Modules that take long are imported here, where a phase of the start counts them.
    main_s = time.monotonic()
    phases: list[tuple[str, float]] = []

    def on_phase(name: str, seconds: float) -> None:
        phases.append((name, seconds))
        sender.send(PhaseDone(name, seconds))

    on_phase("start process", main_s - started_s)
    from chairlift.engine.factory import build_engine_core

    imported_s = time.monotonic()
    on_phase("import", imported_s - main_s)
    config = inbox.receive_config()
    if config is None:
        return 0
    on_phase("wait for flags", time.monotonic() - imported_s)
    try:
        built = build_engine_core(config, on_phase)
    except errors.ChairliftError as error:
        sender.send(StartFailed(type(error).__name__, str(error)))
        return 1
    except Exception as error:
        _LOGGER.exception("the engine could not be built")
        sender.send(StartFailed("EngineError", f"{type(error).__name__}: {error}"))
        return 1
    gc.freeze()  # what the start made stays: the collector need not look at it again
    gc.enable()
    sender.send(replace(built.info, phases=tuple(phases)))
    code = _run(built.core, inbox, sender.send)
    if built.saving is not None:
        built.saving.finish()
    return code


def _run(core: EngineCore, inbox: SocketInbox, send: Callable[[object], None]) -> int:
    from chairlift.engine.engine_loop import HEARTBEAT_S, run_engine_loop

    try:
        run_engine_loop(core, inbox, send, heartbeat_s=HEARTBEAT_S)
    except Exception as error:
        _LOGGER.exception("the engine loop has died")
        send(LoopDied(f"{type(error).__name__}: {error}"))
        return 1
    return 0


def _die_with_parent(parent_pid: int) -> bool:
    """Ask the kernel to kill this process when its parent dies; False if it has died already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    return os.getppid() == parent_pid


if __name__ == "__main__":
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    sys.exit(main(sys.argv[1:]))
