"""What the server does before any page is drawn. In: requests. Out: the same answers, with one line added to HTML.

A visitor who opens /vectors makes Streamlit's client look for its server at /vectors/ first: two failed requests, shown
as errors in the browser's console, and a slower first page. The line tells the client that the server is at the root.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_LINE = b'<script>window.__streamlit={BACKEND_BASE_URL:window.location.origin+"/"}</script>'


class RootAddress:
    """ASGI middleware: puts the line into every HTML document, right after <head>."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything through; HTML is held back until it is whole."""
        if scope["type"] != "http" or "." in scope["path"] or scope["path"].startswith("/_stcore"):
            await self.app(scope, receive, send)
            return
        # A compressed document could not be changed.
        headers = [(k, v) for k, v in scope["headers"] if k.lower() != b"accept-encoding"]
        document = _Document(send)
        await self.app({**scope, "headers": headers}, receive, document.send)


class _Document:
    """One answer on its way out."""

    def __init__(self, send: Send):
        self._send = send
        self._start: Message | None = None
        self._body = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            kinds = [v for k, v in message["headers"] if k.lower() == b"content-type"]
            if message["status"] == 200 and any(v.startswith(b"text/html") for v in kinds):
                self._start = message
                return
        if self._start is None or message["type"] != "http.response.body":
            await self._send(message)
            return
        self._body += message.get("body", b"")
        if message.get("more_body"):
            return
        body = self._body.replace(b"<head>", b"<head>" + _LINE, 1) if self._body else b""
        kept = [(k, v) for k, v in self._start["headers"] if k.lower() not in (b"content-length", b"etag")]
        length = [(b"content-length", str(len(body)).encode())] if body else []
        await self._send({**self._start, "headers": [*kept, *length]})
        await self._send({"type": "http.response.body", "body": body})
