"""A small HTTP server on the user's machine: it waits for the browser that comes back from an OIDC provider.

Only the request whose `state` is the expected one counts: another page of the browser could send others. Nothing of a
request is shown in the page.
"""

from __future__ import annotations

import hmac
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

from yurt.cli.errors import CliError, UsageError

PATH: Final = "/oidc/callback"
PAGE: Final = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>Yurt</title>'
    "<p>{text} You may close this page and go back to the terminal.</p></html>"
)
REQUEST_S: Final = 10.0
"""How long a browser may take to send a request; it may open connections that it never uses."""
TEXT_MAX: Final = 256


class BrowserCallback(NamedTuple):
    """The parameters of the redirect from the provider; "" for one that is missing."""

    code: str
    state: str
    issuer: str
    error: str


class CallbackServer:
    """Listens from its construction on; a context manager that stops listening."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or int(port) > 65535:
            raise UsageError(f'-oidc-callback-addr: "{address}" is not HOST:PORT, for example localhost:4649')
        self._found: BrowserCallback | None = None
        self._state = ""
        self._is_done = threading.Event()
        try:
            self._server = ThreadingHTTPServer((host.strip("[]"), int(port)), self._handler())
        except OSError as error:
            raise CliError(
                f"Error: cannot listen on {address} for the browser: {error.strerror}; "
                "name another address with -oidc-callback-addr, which the login method has to allow"
            ) from None
        self.redirect_uri = f"http://{host}:{self._server.server_port}{PATH}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)

    def __enter__(self) -> CallbackServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def expect(self, state: str) -> None:
        """The `state` of the callback that counts."""
        self._state = state

    def wait(self, timeout_s: float) -> BrowserCallback:
        """Wait for the callback, up to a limit in seconds; raises CliError when none comes in time."""
        if not self._is_done.wait(timeout_s) or self._found is None:
            raise CliError(f"Error: no browser came back within {timeout_s:g} s")
        return self._found

    def _take(self, target: str) -> bool:
        """Whether a request is the expected callback; the first one counts."""
        parts = urlsplit(target)
        parameters = {name: values[0] for name, values in parse_qs(parts.query).items()}
        state = parameters.get("state", "")
        is_expected = bool(self._state) and hmac.compare_digest(state.encode(), self._state.encode())
        if parts.path != PATH or not is_expected or self._is_done.is_set():
            return False
        error = ": ".join(filter(None, (parameters.get("error"), parameters.get("error_description"))))
        self._found = BrowserCallback(parameters.get("code", ""), state, parameters.get("iss", ""), error[:TEXT_MAX])
        self._is_done.set()
        return True

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        take = self._take

        class Handler(BaseHTTPRequestHandler):
            timeout = REQUEST_S

            def do_GET(self) -> None:
                is_accepted = take(self.path)
                text = "Yurt has received the login." if is_accepted else "This address does not belong to a login."
                body = PAGE.format(text=text).encode()
                self.send_response(200 if is_accepted else 400)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Cache-Control", "no-store")
                self.send_header("Referrer-Policy", "no-referrer")
                self.send_header("Content-Security-Policy", "default-src 'none'")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Codes stay out of the terminal."""

        return Handler
