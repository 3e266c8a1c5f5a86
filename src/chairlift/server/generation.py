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
from chairlift.server.engine_client import EngineClient

Piece = tuple[int, RequestOutput]


async def stream_outputs(
    engine: EngineClient, requests: Sequence[GenerateRequest]
) -> AsyncGenerator[Piece, None]:
    """Yield what is new as it comes, with the number of the prompt it belongs to.

    Closing the generator aborts what still runs.

    Raises:
        RequestFailedError: The engine gave up on one of them; the others are aborted.
        EngineError: The engine refuses a request or has died.
    """
    if len(requests) == 1:
        async with aclosing(_outputs(engine, requests[0], is_streamed=True)) as outputs:
            async for output in outputs:
                yield 0, output
        return
    pieces: asyncio.Queue[Piece | None] = asyncio.Queue()
    tasks = [
        asyncio.ensure_future(_forward(engine, index, request, pieces))
        for index, request in enumerate(requests)
    ]
    all_done = asyncio.gather(*tasks)
    all_done.add_done_callback(lambda _: pieces.put_nowait(None))
    try:
        while (piece := await pieces.get()) is not None:
            yield piece
        await all_done
    finally:
        await _cancel(tasks)


async def whole_outputs(
    engine: EngineClient, requests: Sequence[GenerateRequest]
) -> list[RequestOutput]:
    """Wait for the whole output of each request; cancelling the task aborts them.

    Raises:
        As ``stream_outputs``.
    """
    tasks = [asyncio.ensure_future(_whole(engine, request)) for request in requests]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await _cancel(tasks)


async def _cancel(tasks: Sequence[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _forward(
    engine: EngineClient, index: int, request: GenerateRequest, pieces: asyncio.Queue[Piece | None]
) -> None:
    async with aclosing(_outputs(engine, request, is_streamed=True)) as outputs:
        async for output in outputs:
            pieces.put_nowait((index, output))


async def _whole(engine: EngineClient, request: GenerateRequest) -> RequestOutput:
    async with aclosing(_outputs(engine, request, is_streamed=False)) as outputs:
        return joined([output async for output in outputs])


async def _outputs(
    engine: EngineClient, request: GenerateRequest, *, is_streamed: bool
) -> AsyncGenerator[RequestOutput, None]:
    async with aclosing(engine.generate(request, stream=is_streamed)) as outputs:
        async for output in outputs:
            _check_not_aborted(output)
            yield output


def _check_not_aborted(output: RequestOutput) -> None:
    for choice in output.choices:
        if choice.finish_reason in (FinishReason.ABORT, FinishReason.ERROR):
            raise RequestFailedError(
                f"request {output.request_id} was ended by the server before it was complete"
            )
