"""How many KV blocks stay free when requests start, so that those that run have room to grow."""

from __future__ import annotations

from chairlift.core.request import Request, RequestStatus

MIN_SHARE, MAX_SHARE = 0.01, 0.5
_RISE, _FALL = 2.0, 15 / 16


class Watermark:
    """Blocks kept free when requests that never ran are admitted: an adaptive share of the pool.

    It doubles with each step in which a running request lost its blocks to another's growth, from
    1 % up to 50 %, and falls by a sixteenth with each request that ends. It is requests that end
    which make room, so nothing would be gained by falling in between. If every request lost its
    blocks once, ten would end between two that did: in balance a step preempts for every
    ``log 2 / log 16/15`` = 10.7 requests that end, however small the pool.

    Nothing is kept while nothing runs; so it cannot hold up a request for ever.
    """

    def __init__(self, num_blocks: int) -> None:
        self._num_blocks = num_blocks
        self._share = MIN_SHARE

    @property
    def share(self) -> float:
        """The share of the pool that is kept free, from 0 to 1."""
        return self._share

    def rise(self) -> None:
        """In this step a running request lost its blocks because another needed some."""
        self._share = min(MAX_SHARE, max(_RISE * self._share, 1 / self._num_blocks))

    def fall(self) -> None:
        """A request that ran has ended."""
        self._share = max(MIN_SHARE, _FALL * self._share)

    def num_reserved(self, request: Request, num_running: int) -> int:
        """Blocks that must stay available when a request starts or returns.

        A request that returns must leave one for each that runs and for itself, each of which may
        need one at the next step: so it does not lose its own again at once.
        """
        if not num_running:
            return 0
        if request.status is RequestStatus.PREEMPTED:
            return num_running + 1
        return int(self._num_blocks * self._share)
