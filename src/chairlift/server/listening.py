"""The address that the server listens on."""

from __future__ import annotations

import socket

from chairlift.errors import ConfigError
from chairlift.server.settings import ServerSettings


def bind(settings: ServerSettings) -> socket.socket:
    """Take the address, without accepting connections yet.

    Raises:
        ConfigError: It cannot be had.
    """
    host, port = settings.host, settings.port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigError(f"host {host!r} is no address of this machine: {error}") from None
    family, kind, protocol, _, address = found[0]
    listening = socket.socket(family, kind, protocol)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"cannot listen on {host} port {port}: {error.strerror}; choose another --port or "
            "--host"
        ) from None
    return listening


def url_of(listening: socket.socket) -> str:
    """Where this machine's own clients reach the server."""
    host, port = listening.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
