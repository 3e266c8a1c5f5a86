"""What each tenant uses of the engine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from chairlift.engine.answers import Choice
from chairlift.inputs import GenerateRequest


@dataclass(frozen=True, slots=True)
class TenantUsage:
    """What one tenant has and had.

    Attributes:
        num_queued: Its choices that wait for their first token.
        num_tokens: Its prompt tokens and output tokens since the start.
    """

    num_queued: int = 0
    num_tokens: int = 0


class TenantTokens:
    """Sums of the tokens of accepted requests, by tenant; requests of nobody are not counted."""

    def __init__(self) -> None:
        self._num_ended: dict[str, int] = {}

    def add_request(self, request: GenerateRequest) -> None:
        """Count the prompt of a new request, once for all its choices."""
        self._add(request.tenant, len(request.prompt_token_ids))

    def add_ended(self, choice: Choice) -> None:
        """Count the output of a choice that has ended, in whatever way."""
        self._add(choice.answer.request.tenant, choice.num_tokens)

    def usage_of(self, tenant: str, live: Iterable[Choice]) -> TenantUsage:
        """Usage of a tenant, ``live`` being the choices of all that have not ended."""
        own = [choice.num_tokens for choice in live if choice.answer.request.tenant == tenant]
        return TenantUsage(
            num_queued=own.count(0), num_tokens=sum(own) + self._num_ended.get(tenant, 0)
        )

    def _add(self, tenant: str, num_tokens: int) -> None:
        if tenant:
            self._num_ended[tenant] = self._num_ended.get(tenant, 0) + num_tokens
