"""Where the time of a step goes, as sums of nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class RunnerTimes:
    """Sums since the start, written by the runner alone.

    Attributes:
        swap_ns: Copying KV blocks between the tiers.
        build_ns: Registering requests, making the flat batch, writing back sampled tokens.
        forward_ns: The model up to its last hidden states.
        logits_ns: The output head, for the rows that need it.
        sample_ns: From logits to tokens and logprobs.
    """

    swap_ns: int = 0
    build_ns: int = 0
    forward_ns: int = 0
    logits_ns: int = 0
    sample_ns: int = 0

    def reset(self) -> None:
        """Start from nothing."""
        self.swap_ns = self.build_ns = self.forward_ns = self.logits_ns = self.sample_ns = 0
