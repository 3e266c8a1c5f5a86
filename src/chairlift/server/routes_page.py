"""The built-in page: a chat and a board of the engine in one file that loads nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_INLINE = re.compile(r"<(style|script)[^>]*>(.*?)</\1>", re.DOTALL)


async def page(request: Request) -> Response:
    """The page; open to all, since it holds nothing that the API would not ask a key for."""
    root_path = request.scope.get("root_path", "")
    text = files(__package__).joinpath("static/index.html").read_text(encoding="utf-8")
    return Response(
        _under(root_path, text),
        media_type="text/html",
        headers={
            "content-security-policy": _policy(text),
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
            "cache-control": "no-cache",
        },
    )


def _under(root_path: str, text: str) -> str:
    """Make relative addresses in the page lead below ``root_path``, however it was asked for.

    Without it they are relative to the page's own address, which is right wherever that ends in a
    slash, behind a proxy that nobody told us about too.
    """
    if not root_path:
        return text
    base = f'<base href="{html.escape(root_path)}/">'
    return text.replace("<head>", f"<head>\n{base}", 1)


def _policy(text: str) -> str:
    """The page may run its own script, take its own style, and talk to this server: no more."""
    hashes = {kind: _csp_hash(content) for kind, content in _INLINE.findall(text)}
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {hashes['script']}",
            f"style-src {hashes['style']}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'self'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


def _csp_hash(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


ROUTES = (Route("/", page, methods=["GET"]),)
