"""A workload as it is described on the command line; docstrings double as help texts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from chairlift.errors import ConfigError
from chairlift.workload.arrivals import ArrivalKind, ArrivalProcess
from chairlift.workload.lengths import parse_lengths
from chairlift.workload.traces import read_trace
from chairlift.workload.workload import Workload, make_workload


@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    """Which requests come, and when.

    Attributes:
        num_requests: How many; of a trace, the first so many, and 0 is all of it.
        rate: Requests per second; inf: all at the start. 0: as the trace has them.
        arrivals: ``poisson``: at random, independent of each other; ``constant``: evenly;
            ``gamma``: as ``burstiness`` says.
        burstiness: Below 1 the requests of ``gamma`` arrivals come in bursts, above 1 more
            evenly; 1 is poisson.
        prompt_lengths: Prompt tokens: N, uniform:LOW-HIGH, lognormal:MEDIAN,P95[,MAX], or several
            with their shares, as in mix:0.9*lognormal:10,40+0.1*uniform:200-400.
        output_lengths: Output tokens, the same way.
        trace: Take lengths, and without a rate the arrivals too, from a CSV file with the columns
            of the Azure LLM inference traces: TIMESTAMP, ContextTokens, GeneratedTokens.
        prefix_groups: Prompts start with one of so many common prefixes; 0: with none.
        prefix_tokens: Length of each common prefix.
        seed: Another one draws another workload.
    """

    num_requests: int = 1000
    rate: float = 4.0
    arrivals: ArrivalKind = "poisson"
    burstiness: float = 1.0
    prompt_lengths: str = "lognormal:100,400,4096"
    output_lengths: str = "lognormal:100,400,2048"
    trace: Path | None = None
    prefix_groups: int = 0
    prefix_tokens: int = 256
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("num_requests", "prefix_groups", "seed"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must be at least 0, got {getattr(self, name)}")

    def build(self) -> Workload:
        """Draw or read the workload.

        Raises:
            ConfigError: A value cannot be, or the trace is broken.
            OSError: The trace cannot be opened.
        """
        workload = self._read() if self.trace else self._draw()
        if self.prefix_groups:
            rng = np.random.default_rng([self.seed, 1])
            workload = workload.with_prefixes(self.prefix_groups, self.prefix_tokens, rng)
        return workload

    def _draw(self) -> Workload:
        if self.rate == 0:
            raise ConfigError("rate 0 takes the arrivals of a trace, and no trace is given")
        prompts, outputs = parse_lengths(self.prompt_lengths), parse_lengths(self.output_lengths)
        return make_workload(self.num_requests, self._process(), prompts, outputs, self.seed)

    def _read(self) -> Workload:
        if self.trace is None:
            raise ConfigError("no trace is given")
        workload = read_trace(self.trace, limit=self.num_requests or None)
        if self.rate == 0:
            return workload
        return workload.at_rate(self._process(), np.random.default_rng(self.seed))

    def _process(self) -> ArrivalProcess:
        return ArrivalProcess(self.arrivals, self.rate, self.burstiness)
