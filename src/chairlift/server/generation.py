"""Runs the engine requests of one HTTP request, one per prompt, and joins their outputs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from chairlift.errors import RequestFailedError
from chairlift.inputs import GenerateRequest
from chairlift.outputs import FinishReason, RequestOutput
from chairlift.server.answer_writer import joined
from chairlift.server.engine_client import EngineClient, OutputStream

Piece = tuple[int, RequestOutput]


def start_all(
    engine: EngineClient, requests: Sequence[GenerateRequest], *, is_streamed: bool
) -> list[OutputStream]:
    """Hand all requests to the engine; those that are dropped are aborted.

    Raises:
        EngineError: The engine refuses a request or has died.
    """
    return [engine.generate(request, stream=is_streamed) for request in requests]


async def stream_outputs(streams: Sequence[OutputStream]) -> AsyncGenerator[Piece, None]:
    """Yield what is new as it comes, with the number of the prompt it belongs to.

    Closing the generator aborts what still runs.

    Raises:
        RequestFailedError: The engine gave up on one of them; the others are aborted.
        EngineError: The engine has died.
    """
    if len(streams) == 1:  # without another generator between: this is run for every token
        async with aclosing(streams[0]) as outputs:
            async for output in outputs:
                _check_not_aborted(output)
                yield 0, output
        return
    pieces: asyncio.Queue[Piece | None] = asyncio.Queue()
    tasks = [
        asyncio.ensure_future(_forward(index, stream, pieces))
        for index, stream in enumerate(streams)
    ]
    all_done = asyncio.gather(*tasks)
    all_done.add_done_callback(lambda _: pieces.put_nowait(None))
    try:
        while (piece := await pieces.get()) is not None:
            yield piece
        await all_done
    finally:
        await _cancel(tasks)


async def whole_outputs(streams: Sequence[OutputStream]) -> list[RequestOutput]:
    """Wait for the whole output of each request; cancelling the task aborts them.

    Raises:
        As ``stream_outputs``.
    """
    tasks = [asyncio.ensure_future(_whole(stream)) for stream in streams]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await _cancel(tasks)


async def _cancel(tasks: Sequence[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _forward(index: int, stream: OutputStream, pieces: asyncio.Queue[Piece | None]) -> None:
    async with aclosing(_outputs(stream)) as outputs:
        async for output in outputs:
            pieces.put_nowait((index, output))


async def _whole(stream: OutputStream) -> RequestOutput:
    async with aclosing(_outputs(stream)) as outputs:
        return joined([output async for output in outputs])


async def _outputs(stream: OutputStream) -> AsyncGenerator[RequestOutput, None]:
    async with aclosing(stream):
        async for output in stream:
            _check_not_aborted(output)
            yield output


def _check_not_aborted(output: RequestOutput) -> None:
    for choice in output.choices:
        if choice.finish_reason in (FinishReason.ABORT, FinishReason.ERROR):
            raise RequestFailedError(
                f"request {output.request_id} was ended by the server before it was complete"
            )
