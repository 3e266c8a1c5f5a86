"""Every exception Chairlift raises on purpose.

ChairliftError
├── ConfigError(ValueError)              bad option or combination; CLI exit code 2
├── ModelLoadError                       model missing, broken or not supported; CLI exit code 2
├── RequestError                         the caller's fault: this request alone is refused
│   ├── InvalidParameterError(ValueError)    HTTP 400
│   ├── ContextLengthError(ValueError)       HTTP 400, code context_length_exceeded
│   ├── ModelNotFoundError                   HTTP 404, code model_not_found
│   └── RequestNotFoundError                 HTTP 404, code request_not_found
├── EngineError                          our fault or our state
│   ├── EngineOverloadedError                HTTP 429 with Retry-After
│   │   ├── QuotaExceededError                   HTTP 429: the tenant's own limit
│   │   └── StartTooLateError                    HTTP 429: it would start later than the target
│   ├── EngineDrainingError                  HTTP 503: the server is shutting down
│   ├── RequestFailedError                   HTTP 500: one request failed in the engine
│   │   └── QueueTimeoutError                    HTTP 503 with Retry-After: it waited too long
│   └── EngineDeadError                      HTTP 500; /health turns 503
└── KernelInputError(ValueError)         wrong shape, dtype or stride handed to a kernel

A message names the field, the value, the bound and the way out.
"""

from __future__ import annotations


class ChairliftError(Exception):
    """Base of all errors raised on purpose."""


class ConfigError(ChairliftError, ValueError):
    """A configuration value, or a combination of values, cannot work."""


class ModelLoadError(ChairliftError):
    """A model cannot be found, is broken, or is of a kind that is not supported."""


class RequestError(ChairliftError):
    """One request cannot be served as it was sent."""

    code: str | None = None

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class InvalidParameterError(RequestError, ValueError):
    """A field of a request is missing, of the wrong type, or out of its bounds."""


class ContextLengthError(RequestError, ValueError):
    """A request needs more tokens than ``max_model_len`` or the KV pool can ever hold."""

    code = "context_length_exceeded"


class ModelNotFoundError(RequestError):
    """A request names a model that this server does not serve."""

    code = "model_not_found"


class RequestNotFoundError(RequestError):
    """A request is asked about that is not known, or not any more."""

    code = "request_not_found"


class EngineError(ChairliftError):
    """The engine cannot serve a request that was itself correct."""


class EngineOverloadedError(EngineError):
    """The waiting queue is full; ``retry_after_s`` estimates when it will not be."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class QuotaExceededError(EngineOverloadedError):
    """A tenant has used what it may; ``retry_after_s`` says when there is more."""


class StartTooLateError(EngineOverloadedError):
    """A request would start later than wanted; ``retry_after_s`` says when it might not."""


class EngineDrainingError(EngineError):
    """The engine finishes what it has and takes nothing new."""


class RequestFailedError(EngineError):
    """The engine failed this one request; others go on."""


class QueueTimeoutError(RequestFailedError):
    """A request waited too long for its start; ``retry_after_s`` is how long it did."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class EngineDeadError(EngineError):
    """The engine process or thread has ended and no request can be served."""


class KernelInputError(ChairliftError, ValueError):
    """An array handed to a kernel has the wrong shape, dtype or layout."""
