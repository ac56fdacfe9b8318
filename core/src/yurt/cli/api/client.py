"""The HTTP client of the command line: the standard library's http.client, so that a command starts in milliseconds.

One connection is kept open and used again. A reader asks and gets decoded JSON; whatever goes wrong becomes one
exception with one sentence: `Unreachable` when no agent answered, `ApiError` when the agent refused.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import time
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote, urlencode, urlsplit

from yurt.cli.api.answer_limits import AnswerLimits, AnswerTooSlow, read_bounded, response_with_deadline
from yurt.cli.errors import ApiError, BrokenOff, Unreachable
from yurt.sdk.errors import ERROR_HEADER

if TYPE_CHECKING:
    from yurt.cli.api.websocket import WebSocket

TIMEOUT_S = 30.0
WAIT_MARGIN_S = 15.0
CONNECT_S = 5.0
"""How long a connection of a stream with a bound may take."""
BROKEN_OFF = (
    "ended its answer before the end: it is stopping, it lost the server or the node that gave the answer, or the "
    "token lost its rights"
)
ERROR_TEXT_BYTES_MAX = 64 * 1024

Query = Mapping[str, str | int | bool | tuple[str, ...] | None]
"""A parameter with several values occurs once for each."""


class AgentAddress(NamedTuple):
    """The agent's address and TLS settings."""

    address: str = "http://127.0.0.1:4646"
    token: str = ""
    namespace: str = ""
    region: str = ""
    http_auth: str = ""
    ca_cert: str = ""
    ca_path: str = ""
    client_cert: str = ""
    client_key: str = ""
    tls_server_name: str = ""
    is_insecure: bool = False
    timeout_s: float = TIMEOUT_S


class IndexedAnswer(NamedTuple):
    """The body of a response and the state index that it reflects."""

    data: Any
    index: int  # type: ignore[assignment]  # no answer is ever searched as a tuple
    next_token: str = ""


class RawAnswer(NamedTuple):
    """A response with status, headers and raw body."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes


class ApiClient:
    """A client of one agent. Not thread-safe."""

    def __init__(self, connection: AgentAddress, *, limits: AnswerLimits | None = None) -> None:
        """`limits` bound the answers of an agent that is not trusted; streams have none."""
        self.connection = connection
        self._limits = limits
        parts = urlsplit(connection.address if "://" in connection.address else f"http://{connection.address}")
        if parts.scheme not in ("http", "https", "unix"):
            raise ValueError(f'The address "{connection.address}" must begin with http://, https:// or unix://')
        self._parts = parts
        self._open: http.client.HTTPConnection | None = None

    @property
    def namespace(self) -> str:
        """The namespace of requests; "default" unless given."""
        return self.connection.namespace or "default"

    def get(self, path: str, query: Query | None = None, *, headers: Mapping[str, str] | None = None) -> Any:
        """Send a GET; returns the decoded body."""
        return _decode(self._ask("GET", path, query, headers=headers).body) if headers else self.read(path, query).data

    def read(self, path: str, query: Query | None = None, *, index: int = 0, wait_s: float = 0.0) -> IndexedAnswer:
        """A GET; with `index` it blocks until the state is past it or `wait_s` are over."""
        merged: dict[str, Any] = dict(query or {})
        timeout = self.connection.timeout_s
        if index > 0:
            merged |= {"index": index, "wait": f"{max(1, round(wait_s * 1000))}ms"}
            timeout = max(timeout, wait_s * 17 / 16 + WAIT_MARGIN_S)
        answer = self._ask("GET", path, merged, timeout_s=timeout)
        shown = answer.headers.get("x-nomad-index", "")
        data = _decode(answer.body)
        return IndexedAnswer(data, int(shown) if shown.isdigit() else 0, answer.headers.get("x-nomad-nexttoken", ""))

    def put(self, path: str, body: Any = None, query: Query | None = None) -> Any:
        """Send a PUT with a JSON body; returns the decoded body."""
        sent = b"" if body is None else json.dumps(body).encode()
        return _decode(self._ask("PUT", path, query, body=sent).body)

    def delete(
        self, path: str, query: Query | None = None, *, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        """Send a DELETE, with a JSON body where the route takes one; returns the decoded body."""
        sent = b"" if body is None else json.dumps(body).encode()
        return _decode(self._ask("DELETE", path, query, body=sent, headers=headers).body)

    def raw(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> RawAnswer:
        """Send any request; returns the response with any status. `path` may contain a query."""
        plain, _, query = path.partition("?")
        return self._exchange(method, self._target(plain, {}, extra=query), body, headers, self.connection.timeout_s)

    def url(self, path: str) -> str:
        """The whole address of a path."""
        plain, _, query = path.partition("?")
        base = "" if self._parts.scheme == "unix" else f"{self._parts.scheme}://{self._parts.netloc}"
        return base + self._target(plain, {}, extra=query)

    def request_headers(self, *, has_body: bool = False) -> dict[str, str]:
        """The headers that every request carries."""
        headers = {"Accept": "application/json", "User-Agent": "yurt"}
        if has_body:
            headers["Content-Type"] = "application/json"
        if self.connection.token:
            headers["X-Nomad-Token"] = self.connection.token
        if self.connection.http_auth:
            headers["Authorization"] = "Basic " + base64.b64encode(self.connection.http_auth.encode()).decode()
        return headers

    def stream(self, path: str, query: Query | None = None, *, silence_s: float | None = None) -> Generator[bytes]:
        """The chunks of a streamed response on a separate connection. Also raises BrokenOff.

        With `silence_s` it is Unreachable when nothing comes for so long; connecting is given up sooner.
        """
        connection = self._connect(None if silence_s is None else min(silence_s, CONNECT_S))
        try:
            connection.connect()
            connection.sock.settimeout(silence_s)
            connection.request("GET", self._target(path, query or {}), headers=self.request_headers())
            response = connection.getresponse()
            if response.status >= 400:
                text = _error_text(response.status, response.read(ERROR_TEXT_BYTES_MAX))
                raise ApiError(response.status, text, response.getheader(ERROR_HEADER, ""))
            while piece := response.read1(65536):
                yield piece
        except OSError as error:
            raise self._unreachable(error) from None
        except http.client.HTTPException:
            raise BrokenOff(f"The agent at {self.connection.address} {BROKEN_OFF}") from None
        finally:
            connection.close()

    def websocket(self, path: str, query: Query | None = None) -> WebSocket:
        """Open a websocket on a separate connection; raises ApiError when the agent refuses."""
        from yurt.cli.api.websocket import WebSocket, switch

        connection = self._connect(self.connection.timeout_s)
        try:
            connection.connect()
            target, headers = self._target(path, query or {}), self.request_headers()
            status, text, first, reason = switch(connection.sock, target, self._parts.netloc or "localhost", headers)
            if status != 101:
                raise ApiError(status, _error_text(status, text.encode()), reason)
        except (OSError, ValueError) as error:
            connection.close()
            raise self._unreachable(error) from None
        except ApiError:
            connection.close()
            raise
        return WebSocket(connection.sock, first)

    def close(self) -> None:
        """Close the kept connection."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _ask(
        self,
        method: str,
        path: str,
        query: Query | None,
        *,
        body: bytes = b"",
        timeout_s: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> RawAnswer:
        target = self._target(path, query or {})
        answer = self._exchange(method, target, body, headers, timeout_s or self.connection.timeout_s)
        if not 200 <= answer.status < 300:
            raise error_of(answer)
        return answer

    def _target(self, path: str, query: Query, *, extra: str = "") -> str:
        parameters: dict[str, Any] = {}
        present = {part.split("=")[0] for part in extra.split("&")} if extra else set()
        for name, value in (("region", self.connection.region), ("namespace", self.connection.namespace)):
            if value and name not in present:
                parameters[name] = value
        parameters |= {
            name: value if isinstance(value, tuple) else _text(value)
            for name, value in query.items()
            if value is not None and value != ""
        }
        tail = "&".join(part for part in (extra, urlencode(parameters, doseq=True, quote_via=quote)) if part)
        path = quote(path, safe="/%:@!$&'()*+,;=~-._")
        return f"{path}?{tail}" if tail else path

    def _exchange(
        self, method: str, target: str, body: bytes, headers: Mapping[str, str] | None, timeout_s: float
    ) -> RawAnswer:
        sent = self.request_headers(has_body=bool(body)) | dict(headers or {})
        for is_last in (False, True):
            was_open = self._open is not None
            connection = self._open = self._open or self._connect(timeout_s)
            if connection.sock is not None:
                connection.sock.settimeout(timeout_s)
            connection.timeout = timeout_s
            try:
                if self._limits is not None:
                    ends = time.monotonic() + self._limits.seconds_max
                    connection.response_class = response_with_deadline(ends)
                connection.request(method, target, body=body or None, headers=sent)
                response = connection.getresponse()
                names = {name.lower(): value for name, value in response.getheaders()}
                read = response.read() if self._limits is None else read_bounded(response, self._limits.bytes_max)
                return RawAnswer(response.status, response.reason, names, read)
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError) as error:
                self.close()
                if is_last or not was_open:
                    raise self._unreachable(error) from None
            except (OSError, http.client.HTTPException) as error:
                self.close()
                raise self._unreachable(error) from None
        raise AssertionError("the loop returns or raises")

    def _connect(self, timeout_s: float | None) -> http.client.HTTPConnection:
        parts = self._parts
        if parts.scheme == "unix":
            return _UnixConnection(unquote(parts.netloc + parts.path), timeout_s)
        if parts.scheme == "https":
            return _TlsConnection(self.connection, parts.hostname or "127.0.0.1", parts.port or 443, timeout_s)
        return http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port or 80, timeout=timeout_s)

    def _unreachable(self, error: Exception) -> Unreachable:
        address = self.connection.address
        hint = "name the agent's address with -address or NOMAD_ADDR"
        if isinstance(error, ConnectionRefusedError | FileNotFoundError):
            return Unreachable(f"No agent answers at {address}. Start one with `yurt agent -dev`, or {hint}.")
        if isinstance(error, TimeoutError):
            return Unreachable(f"The agent at {address} did not answer in time; is it overloaded or the wrong address?")
        if isinstance(error, AnswerTooSlow) and self._limits is not None:
            most = f"{self._limits.seconds_max:g} s"
            return Unreachable(f"The agent at {address} did not end its answer within {most}; is it the wrong address?")
        if isinstance(error, socket.gaierror):
            return Unreachable(f"The host name in {address} cannot be resolved; {hint}.")
        if isinstance(error, ssl.SSLError):
            return Unreachable(
                f"No TLS with {address}: {error}; see -ca-cert, -client-cert, or use http:// in the address."
            )
        if isinstance(error, http.client.RemoteDisconnected | ConnectionResetError | BrokenPipeError):
            guess = "is it stopping, or does it speak https?"
            if address.startswith("https:"):
                guess = "is it stopping, or does it ask for a certificate (-client-cert and -client-key)?"
            return Unreachable(f"The agent at {address} closed the connection; {guess}")
        if isinstance(error, PermissionError):
            return Unreachable(f"{address} may not be opened by this user: {error.strerror}.")
        return Unreachable(f"No usable answer from {address}: {error}; {hint}.")


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout_s: float | None) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Open the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class _TlsConnection(http.client.HTTPSConnection):
    """HTTPS with the authorities, certificate and server name that the flags name."""

    def __init__(self, settings: AgentAddress, host: str, port: int, timeout_s: float | None) -> None:
        context = _tls_context(settings)
        super().__init__(host, port, timeout=timeout_s, context=context)
        self._server_name = settings.tls_server_name or host
        self._tls = context

    def connect(self) -> None:
        """Open the socket and check the agent's certificate."""
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._server_name)


def _tls_context(settings: AgentAddress) -> ssl.SSLContext:
    """Raises Unreachable, with the flag, for files that cannot be used."""
    used, wrong = f"-ca-cert {settings.ca_cert}", "it holds no certificate"
    try:
        context = ssl.create_default_context(cafile=settings.ca_cert or None, capath=settings.ca_path or None)
        used = f"-client-cert {settings.client_cert}, -client-key {settings.client_key}"
        wrong = "no certificate with its key"
        if settings.client_cert:
            context.load_cert_chain(settings.client_cert, settings.client_key or None)
    except OSError as error:
        reason = wrong if isinstance(error, ssl.SSLError) else error.strerror
        raise Unreachable(f"The files for TLS cannot be used: {used}: {reason}.") from None
    if settings.is_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _decode(body: bytes) -> Any:
    if not body:
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise ApiError(200, "The answer is not JSON; is this address an agent's?") from None


def error_of(answer: RawAnswer) -> ApiError:
    """The error that a response of the agent describes; a redirect is one, since it is not followed."""
    if 300 <= answer.status < 400:
        target = answer.headers.get("location", "")[:200]
        where = f" to {target!r}" if target else ""
        return ApiError(answer.status, f"The agent redirects{where}, which is not followed; give its own address")
    text = _error_text(answer.status, answer.body[:ERROR_TEXT_BYTES_MAX])
    return ApiError(answer.status, text, answer.headers.get(ERROR_HEADER.lower(), ""))


def _error_text(status: int, body: bytes) -> str:
    text = body.decode(errors="replace").strip()
    return text or f"the agent answered {status} {http.client.responses.get(status, '')}".rstrip()
