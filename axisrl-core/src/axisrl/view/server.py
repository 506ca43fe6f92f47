"""Serves the page on this machine only, with the standard library.

1. It listens on the loopback address and answers only requests that name it as their host, so a
   web page elsewhere cannot read a run through the browser.
2. Paths are looked up in a table or parsed to integers; none of them becomes a file name.
3. ``/api/run`` carries an ``ETag``: a page that watches a run asks again and mostly gets 304.
"""

from __future__ import annotations

import hashlib
import re
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from axisrl.runfolder import RolloutKind, RunFolder
from axisrl.view.data import overview, to_json
from axisrl.view.page import SCRIPTS, STYLE, asset, served_page

_ROLLOUTS = re.compile(r"/api/rollouts/(step|eval)/(\d{1,12})")
_LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost"})
_JSON = "application/json; charset=utf-8"


class ViewServer(ThreadingHTTPServer):
    """An HTTP server for one run; ``port`` 0 takes a free one."""

    daemon_threads = True

    def __init__(self, run: RunFolder, port: int) -> None:
        self.run = run
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        """Where to point a browser."""
        return f"http://127.0.0.1:{self.server_address[1]}/"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
        if host not in _LOCAL_HOSTS:
            self._send(HTTPStatus.FORBIDDEN, "text/plain", "this server answers its own host only")
            return
        path = self.path.partition("?")[0]
        if path == "/":
            self._send(HTTPStatus.OK, "text/html; charset=utf-8", served_page())
        elif path == "/api/run":
            self._send_run()
        elif match := _ROLLOUTS.fullmatch(path):
            rows = self._run.rollouts(cast(RolloutKind, match[1]), int(match[2]))
            self._send(HTTPStatus.OK, _JSON, to_json(rows))
        else:
            self._send_asset(path.removeprefix("/static/"))

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not news."""

    @property
    def _run(self) -> RunFolder:
        return cast(ViewServer, self.server).run

    def _send_run(self) -> None:
        tag = f'"{hashlib.sha256(self._run.stamp.encode()).hexdigest()[:16]}"'
        if self.headers.get("If-None-Match") == tag:
            self.send_response(HTTPStatus.NOT_MODIFIED)
            self.send_header("ETag", tag)
            self.end_headers()
            return
        self._send(HTTPStatus.OK, _JSON, to_json(overview(self._run)), ETag=tag)

    def _send_asset(self, name: str) -> None:
        if name == STYLE:
            self._send(HTTPStatus.OK, "text/css; charset=utf-8", asset(name))
        elif name in SCRIPTS:
            self._send(HTTPStatus.OK, "text/javascript; charset=utf-8", asset(name))
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", "not found")

    def _send(self, status: HTTPStatus, kind: str, text: str, **headers: str) -> None:
        body = text.encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-cache")
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
