"""What the engine accepts: a request with nothing left to find out."""

from __future__ import annotations

from dataclasses import dataclass

from chairlift.errors import InvalidParameterError
from chairlift.sampling_params import SamplingParams

MAX_PRIORITY = 1000
"""Largest priority value, and the negative of the smallest."""


@dataclass(frozen=True, slots=True)
class Account:
    """For whom a request runs, and how urgent it is.

    Attributes:
        tenant: On whose account; the empty name is everybody without one.
        priority: Lower is more urgent; counts under the ``priority`` policy.

    Raises:
        InvalidParameterError: The priority is not within ``-MAX_PRIORITY`` to ``MAX_PRIORITY``.
    """

    tenant: str = ""
    priority: int = 0

    def __post_init__(self) -> None:
        if not -MAX_PRIORITY <= self.priority <= MAX_PRIORITY:
            raise InvalidParameterError(
                f"priority must be between -{MAX_PRIORITY} and {MAX_PRIORITY}, got {self.priority}",
                param="priority",
            )


NOBODY = Account()
"""The account of requests that name none."""


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One prompt and how to continue it; validated, tokenised, every field set.

    Attributes:
        request_id: Unique among the requests alive in this engine.
        prompt_token_ids: At least one id, all inside the vocabulary.
        sampling_params: ``max_tokens`` and ``seed`` are set; checked against the vocabulary.
        arrival_time_s: When it came, on the engine's monotonic clock, in seconds.
        cache_salt: Requests share prefix-cache blocks only with requests of the same salt.
        tenant: On whose account it runs.
        priority: Lower is more urgent; counts under the ``priority`` policy.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling_params: SamplingParams
    arrival_time_s: float
    cache_salt: str = ""
    tenant: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class CoreRequest:
    """One choice of a :class:`GenerateRequest`, as it travels to the engine core.

    Attributes:
        request_id: The parent's id, with ``/{choice_index}`` appended when ``n > 1``.
        choice_index: Which of the ``n`` choices; part of the random stream's key.
        eos_token_ids: Ids that end it unless ``ignore_eos``.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling_params: SamplingParams
    arrival_time_s: float
    eos_token_ids: tuple[int, ...]
    choice_index: int = 0
    cache_salt: str = ""
    tenant: str = ""
    priority: int = 0
