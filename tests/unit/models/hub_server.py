"""A stand-in for the hub on this machine: enough of its HTTP interface to download models from."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
_API = re.compile(r"/api/models/(?P<repo>[^/]+/[^/?]+)(?P<rest>/[^?]*)?")
_RESOLVE = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/[^/]+/(?P<file>.+)")


@dataclass
class Hub:
    """What the stand-in serves, and what it was asked.

    Attributes:
        repositories: Files of each, by ``org/name``.
        gated: Repositories that ask for a token.
        token: The token that opens them.
        failing: Answer everything with 500.
        requests: Method and path of each request.
    """

    repositories: Mapping[str, Mapping[str, bytes]]
    gated: frozenset[str] = frozenset()
    token: str = "good-token"
    failing: bool = False
    url: str = ""
    requests: list[str] = field(default_factory=list)


@contextmanager
def serve(hub: Hub) -> Iterator[Hub]:
    """Run a stand-in on a free port of this machine; ``hub.url`` is its address."""
    server = _Server(hub)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    def __init__(self, hub: Hub) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hub = hub


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        hub = self.server.hub
        hub.requests.append(f"{self.command} {self.path}")
        api = _API.fullmatch(self.path.split("?")[0])
        match = api or _RESOLVE.fullmatch(self.path)
        if hub.failing:
            self.send(500)
        elif match is None or match["repo"] not in hub.repositories:
            self.send(404, {"X-Error-Code": "RepoNotFound"})
        elif api:
            described = _describe(api, hub.repositories[api["repo"]])
            self.send(200, body=json.dumps(described).encode())
        elif match["repo"] in hub.gated and not self.has_token():
            self.send(403, {"X-Error-Code": "GatedRepo"})
        else:
            self.send_file(hub.repositories[match["repo"]].get(match["file"]))

    def has_token(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {self.server.hub.token}"

    def send_file(self, data: bytes | None) -> None:
        if data is None:
            return self.send(404, {"X-Error-Code": "EntryNotFound"})
        etag = f'"{hashlib.sha256(data).hexdigest()}"'
        return self.send(200, {"ETag": etag, "X-Repo-Commit": COMMIT}, data)

    def send(
        self, status: int, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def _describe(match: re.Match[str], files: Mapping[str, bytes]) -> object:
    if (match["rest"] or "").startswith("/tree/"):
        return [
            {"type": "file", "path": name, "size": len(data), "oid": str(index)}
            for index, (name, data) in enumerate(files.items())
        ]
    siblings = [{"rfilename": name} for name in files]
    return {"id": match["repo"], "sha": COMMIT, "siblings": siblings}
