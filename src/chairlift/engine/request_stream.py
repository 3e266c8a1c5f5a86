"""What a caller holds while its request is being answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType

from chairlift.errors import EngineError
from chairlift.outputs import RequestOutput


class RequestStream(AsyncIterator[RequestOutput]):
    """Pieces of one answer, as they come; what piled up since the last piece comes as one.

    Leaving early ends the request in the engine: by :meth:`aclose`, by cancelling the task that
    waits for the next piece, or by dropping the stream.

    Args:
        take: Gives what is new; called when :meth:`wake` has been.
        abort: Ends the request.
    """

    def __init__(self, take: Callable[[], RequestOutput], abort: Callable[[], None]) -> None:
        self._take = take
        self._abort = abort
        self._state = Mailbox()

    @property
    def mailbox(self) -> Mailbox:
        """Where the engine leaves word; it holds no reference to the stream."""
        return self._state

    async def __anext__(self) -> RequestOutput:
        """The next piece.

        Raises:
            RequestFailedError: The engine failed this request.
            EngineDeadError: The engine has died.
            StopAsyncIteration: The last piece has been given, or the request was aborted.
        """
        mailbox = self._state
        if not (mailbox.has_news or mailbox.is_closed):
            try:
                await mailbox.news()
            except asyncio.CancelledError:
                self.abort()
                raise
        if mailbox.is_closed:
            raise StopAsyncIteration
        return self._next_piece(mailbox)

    def abort(self) -> None:
        """End the request now; nothing more comes. May be called again."""
        if not self._state.is_closed:
            self._state.close()
            self._abort()

    async def aclose(self) -> None:
        """As :meth:`abort`, named as for asynchronous generators."""
        self.abort()

    async def __aenter__(self) -> RequestStream:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.abort()

    def __del__(self) -> None:
        self.abort()

    def _next_piece(self, mailbox: Mailbox) -> RequestOutput:
        if mailbox.error is not None:
            mailbox.close()
            raise mailbox.error
        mailbox.has_news = False
        try:
            piece = self._take()
        except EngineError:
            mailbox.close()
            raise
        if piece.finished:
            mailbox.close()
        return piece


class Mailbox:
    """Tells one waiting task that there is news; all on one event loop.

    Attributes:
        has_news: Something can be taken.
        is_closed: Nothing more comes, or nobody wants it.
        error: What ended the request, if it was the engine's end.
    """

    __slots__ = ("_waiter", "error", "has_news", "is_closed")

    def __init__(self) -> None:
        self.has_news = False
        self.is_closed = False
        self.error: EngineError | None = None
        self._waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """There is news."""
        self.has_news = True
        self._resume()

    def fail(self, error: EngineError) -> None:
        """The engine has ended."""
        self.error = error
        self.wake()

    def close(self) -> None:
        """Whoever waits is told that nothing more comes."""
        self.is_closed = True
        self._resume()

    def news(self) -> asyncio.Future[None]:
        """Done when there is news or the mailbox is closed; asked for when neither is so."""
        self._waiter = asyncio.get_running_loop().create_future()
        return self._waiter

    def _resume(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
