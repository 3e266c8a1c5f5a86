"""What a user can set about the HTTP server; docstrings double as help texts."""

from __future__ import annotations

from dataclasses import dataclass

from chairlift.engine.tenants import KeyRing, Tenant
from chairlift.errors import ConfigError

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where the server listens, who may use it, and what a request may cost.

    Attributes:
        host: Address to listen on.
        port: TCP port; 0 takes a free one and prints it.
        served_model_name: Names the API answers to, the first being the one it reports; empty:
            the name of the model.
        api_key: Keys of which requests must bring one (``Authorization: Bearer KEY``); empty: all
            are served.
        tenants: Who has keys, and how much each may use; empty: nobody in particular.
        allowed_origin: Web origins whose pages may call the API (CORS); ``*`` for all.
        root_path: Path prefix that a reverse proxy removes, for links in the documentation.
        max_body_bytes: Largest request body; beyond it requests are refused (HTTP 413).
        shutdown_timeout_s: How long SIGTERM and SIGINT wait for running requests, in seconds.
        engine_timeout_s: How long the engine may say nothing before /health answers 503, in
            seconds. It is silent during a step, so this must be more than the longest one.
        access_log: Write a line per request.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    served_model_name: tuple[str, ...] = ()
    api_key: tuple[str, ...] = ()
    tenants: tuple[Tenant, ...] = ()
    allowed_origin: tuple[str, ...] = ()
    root_path: str = ""
    max_body_bytes: int = 16 * MIB
    shutdown_timeout_s: float = 30.0
    engine_timeout_s: float = 30.0
    access_log: bool = False

    def __post_init__(self) -> None:
        if not self.host:
            raise ConfigError("host must not be empty; use 127.0.0.1 or 0.0.0.0")
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port must be between 0 and 65535, got {self.port}")
        if self.max_body_bytes < 1024:
            raise ConfigError(f"max_body_bytes must be at least 1024, got {self.max_body_bytes}")
        if not 0.0 <= self.shutdown_timeout_s <= 86400.0:
            raise ConfigError(
                "shutdown_timeout_s must be between 0 and 86400 seconds, "
                f"got {self.shutdown_timeout_s}"
            )
        if not 1.5 <= self.engine_timeout_s <= 86400.0:
            raise ConfigError(
                "engine_timeout_s must be between 1.5 (an idle engine speaks every second) and "
                f"86400 seconds, got {self.engine_timeout_s}"
            )
        if any(not name for name in self.served_model_name):
            raise ConfigError("served_model_name must not be empty")
        if any(not key for key in self.api_key):
            raise ConfigError("api_key must not be empty")
        KeyRing(self.api_key, self.tenants)
        if self.root_path and not self.root_path.startswith("/"):
            raise ConfigError(f"root_path must start with '/', got {self.root_path!r}")
