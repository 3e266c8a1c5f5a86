"""The waiting line: first come, first served, with O(1) removal from anywhere."""

from __future__ import annotations

from collections import OrderedDict

from chairlift.core.request import Request


class RequestQueue:
    """Requests in order of arrival.

    A request that was preempted goes back to the head. Removal by id is O(1), so that a client
    that leaves costs nothing however long the queue is.
    """

    def __init__(self) -> None:
        self._requests: OrderedDict[str, Request] = OrderedDict()

    def __len__(self) -> int:
        return len(self._requests)

    def append(self, request: Request) -> None:
        """Put a request at the end."""
        self._requests[request.request_id] = request

    def push_front(self, request: Request) -> None:
        """Put a request at the head."""
        self._requests[request.request_id] = request
        self._requests.move_to_end(request.request_id, last=False)

    def head(self) -> Request | None:
        """The request whose turn is next, or ``None``."""
        return next(iter(self._requests.values()), None)

    def remove(self, request: Request) -> None:
        """Take a request out, wherever it is.

        Raises:
            KeyError: It is not in the queue.
        """
        del self._requests[request.request_id]
