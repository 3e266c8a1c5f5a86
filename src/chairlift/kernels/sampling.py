"""The native sampler, as :mod:`chairlift.runner.sampler` uses it.

Its arrays are checked by that module; nothing else should call it.
"""

from chairlift._native import (
    Sampler as NativeSampler,
)
from chairlift._native import (
    SamplingSettings,
    ThreadTeam,
    philox4x32,
    uniform_draw,
)

__all__ = ["NativeSampler", "SamplingSettings", "ThreadTeam", "philox4x32", "uniform_draw"]
