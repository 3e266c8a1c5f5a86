"""Starting the engine process, and telling it what to build.

Imports little: the command line starts the process before it imports what reads flags and serves
HTTP, so that both happen at the same time.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chairlift.config import EngineConfig

CHILD_MODULE = "chairlift.engine.process_child"


class EngineChild:
    """A process that imports what an engine needs, and waits to be told what to build.

    It is in a process group of its own, so that Ctrl-C in a terminal reaches only the parent. It
    dies with its parent, however that ends, and when the socket is closed.

    Make one with :meth:`spawn` on the thread that stays: the kernel takes the end of the thread
    that started the child for the end of the parent.

    Attributes:
        process: The child.
        connection: Our end of the socket to it.
        spawned_s: When it was started, in monotonic seconds.
        is_configured: It has been told what to build.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], connection: socket.socket, spawned_s: float
    ) -> None:
        self.process = process
        self.connection = connection
        self.spawned_s = spawned_s
        self.is_configured = False

    @classmethod
    def spawn(cls, module: str = CHILD_MODULE) -> EngineChild:
        """Start the process."""
        ours, theirs = socket.socketpair()
        spawned_s = time.monotonic()
        with theirs:
            command = [sys.executable, "-P", "-m", module, str(theirs.fileno())]
            process = subprocess.Popen(
                [*command, str(os.getpid()), repr(spawned_s)],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
                process_group=0,
            )
        return cls(process, ours, spawned_s)

    def configure(self, config: EngineConfig) -> None:
        """Find the model, fetching it if needed, and have the child build its engine.

        Raises:
            ModelLoadError: The model cannot be found or fetched.
        """
        from chairlift.engine.frames import encode_frame
        from chairlift.models.pull import locate

        path = locate(config.model.model)
        located = replace(config, model=replace(config.model, model=str(path)))
        with suppress(OSError):  # it has ended; whoever waits for its answer is told how
            self.connection.sendall(encode_frame(located))
        self.is_configured = True

    def end(self) -> None:
        """End the child now and wait until it has; may be called again."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.connection.close()
