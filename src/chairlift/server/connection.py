"""Watches the client's connection: work for somebody who left is cancelled at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

T = TypeVar("T")


async def run_while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to its end, unless the client leaves before.

    To be called when the request's body has been read: what ``receive`` brings after that is only
    the news that the connection is gone.

    Returns:
        What ``work`` returns.

    Raises:
        ClientDisconnect: The client left; ``work`` was cancelled and has ended.
    """
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        watching.cancel()
        working.cancel()
        # Wait until the cancelled work has let go of its requests.
        await asyncio.gather(working, watching, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
