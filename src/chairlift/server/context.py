"""What the routes share: the engine, the settings, and state of the server as a whole."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import uuid4

from starlette.requests import Request

from chairlift.errors import InvalidParameterError, ModelNotFoundError
from chairlift.server.convert import check_request_id, messages_of
from chairlift.server.door import Door
from chairlift.server.engine_client import EngineClient
from chairlift.server.logprobs_format import TokenTexts
from chairlift.server.protocol import ChatMessage
from chairlift.server.settings import ServerSettings


@dataclass(slots=True)
class ServerContext:
    """One per app.

    Attributes:
        created: Unix time of the start, in seconds; the models' creation time in the API.
        is_draining: The server has been told to end; set by the life cycle alone.
    """

    engine: EngineClient
    settings: ServerSettings
    texts: TokenTexts
    door: Door
    created: int = field(default_factory=lambda: int(time.time()))
    is_draining: bool = False

    @property
    def model_names(self) -> tuple[str, ...]:
        """Names that requests may use; the first is the one reported."""
        return self.settings.served_model_name or (self.engine.model_name,)

    def check_model(self, name: str | None) -> str:
        """The name to report for a request that names ``name``.

        Raises:
            ModelNotFoundError: It names a model that is not served.
        """
        if name is None:
            return self.model_names[0]
        if name not in self.model_names:
            raise ModelNotFoundError(
                f"model {name[:200]!r} is not served here; served: {', '.join(self.model_names)}",
                param="model",
            )
        return name

    def render_chat(
        self,
        messages: Iterable[ChatMessage],
        *,
        add_generation_prompt: bool,
        template_kwargs: Mapping[str, Any] | None,
    ) -> str:
        """The prompt text of a conversation.

        Raises:
            InvalidParameterError: The model has no chat template, or its template refuses.
        """
        template = self.engine.chat_template
        if template is None:
            raise InvalidParameterError(
                f"{self.model_names[0]} has no chat template; use /v1/completions with a prompt",
                param="messages",
            )
        return template.render(
            messages_of(messages),
            add_generation_prompt=add_generation_prompt,
            template_kwargs=template_kwargs,
        )


def context_of(request: Request) -> ServerContext:
    """The context of the app that serves ``request``."""
    return cast(ServerContext, request.app.state.context)


def tenant_of(request: Request) -> str:
    """Name of the tenant whose key a request brought; empty if it is nobody's."""
    name: str = request.scope.get("state", {}).get("tenant", "")
    return name


def request_id_of(request: Request, body_id: str | None) -> str:
    """The id to base a request's ids on: the body's, the header's, or a new one.

    Raises:
        InvalidParameterError: An id was given that cannot be used.
    """
    if body_id is not None:
        return check_request_id(body_id, "request_id")
    header_id: str | None = request.scope.get("state", {}).get("request_id")
    return header_id or uuid4().hex
