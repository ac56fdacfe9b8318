"""Connects to one container engine: streams and queries on the event loop, all other calls through its Python package.

Two clients share the work, for a reason each:

* aiohttp over the engine's socket for what must be many, long or cancellable: the one event stream, the output of
  containers (a thread each would be the alternative: 8 MiB of address space and a stack per task), pulls, loads and
  exec output (the packages wait for them without any time limit), and the questions that tell whether the engine is
  alive (they must not queue behind calls that hang).
* the engine's own Python package (it blocks; it takes long to import, hence late) for calls: create, start, kill,
  remove, exec, credentials. They run in a small pool of threads, each with a time-out at the socket, so that a thread
  comes back even when the engine never answers.

An engine that cannot be reached is `EngineDown`, which a retry may mend.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any, Protocol, TypeVar

import aiohttp

from yurt.sdk.containers.address import EngineAddress
from yurt.sdk.errors import Conflict, DriverError, NotFound, Reason, RecoverableError

THREADS = 8
QUESTIONS = 16
QUICK_S = 15.0
SLOW_S = 120.0
ASK_S = 15.0
"""The time limit of a query: a healthy engine on a busy machine may answer late."""
LINE_BYTES_MAX = 1024 * 1024
IN_USE = "in use"
"""An engine's error for a name used by another container; Podman's status is 500, as for many other failures."""
ENDED = "this client's driver of the engine has ended"
T = TypeVar("T")
Query = Mapping[str, str]


class EngineDown(RecoverableError):
    """The engine cannot be reached, or does not answer within the time limit."""


class Library(Protocol):
    """The engine's Python package; both methods run in threads."""

    def new_client(self, target: EngineAddress, timeout_s: float) -> Any:
        """A client with a time limit for each call."""
        ...

    def do(self, act: Callable[[Any], T], client: Any) -> T:
        """Call a client; raises `failure` for an error answer, OSError when the engine cannot be reached."""
        ...


class _Clients:
    """The package's clients, one per time limit; used by threads, closed by the event loop.

    `make` may take as long as its limit and is run without the lock. Each client that it makes is closed once: at
    the end when nobody uses it, else by its last user; at once when another thread was first or the end came meanwhile.
    """

    def __init__(self, make: Callable[[float], Any]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: dict[float, Any] = {}
        self._users: Counter[float] = Counter()
        self._is_closed = False

    @contextmanager
    def use(self, limit_s: float) -> Iterator[Any]:
        """Use a client and protect it from `close` meanwhile; raises `EngineDown` once closed."""
        client = self._begin(limit_s)
        if client is None:
            client = self._keep(limit_s, self._make(limit_s))
        try:
            yield client
        finally:
            self._end(limit_s)

    def _begin(self, limit_s: float) -> Any:
        """Acquire the client of a time limit; None when it does not exist yet."""
        with self._lock:
            self.require_open()
            client = self._made.get(limit_s)
            if client is not None:
                self._users[limit_s] += 1
            return client

    def _keep(self, limit_s: float, made: Any) -> Any:
        """Keep a new client, unless another thread has created one meanwhile."""
        client = None
        with self._lock:
            if not self._is_closed:
                client = self._made.setdefault(limit_s, made)
                self._users[limit_s] += 1
        if client is not made:
            made.close()
        if client is None:
            raise EngineDown(ENDED)
        return client

    def _end(self, limit_s: float) -> None:
        with self._lock:
            self._users[limit_s] -= 1
            unused = self._unused()
        for client in unused:
            client.close()

    def require_open(self) -> None:
        """Raises `EngineDown` once closed."""
        if self._is_closed:
            raise EngineDown(ENDED)

    def close(self) -> None:
        """Close unused clients; those in use are closed after their last use."""
        with self._lock:
            self._is_closed = True
            unused = self._unused()
        for client in unused:
            client.close()

    def _unused(self) -> list[Any]:
        """Remove and return the unused clients once closed."""
        if not self._is_closed:
            return []
        return [self._made.pop(limit_s) for limit_s in tuple(self._made) if not self._users[limit_s]]


class Engine:
    """One engine; created and used on the event loop's thread only.

    `prefix` comes before each path of the API. `frees_execs`: only its word that a command may be removed says that the
    command has ended; of others, that it does not run.
    """

    def __init__(
        self, name: str, target: EngineAddress, library: Library, *, prefix: str = "", frees_execs: bool = False
    ) -> None:
        self.name = name
        self.frees_execs = frees_execs
        self.prefix = prefix
        self.target = target
        self._library = library
        self._session: aiohttp.ClientSession | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._asking = asyncio.Semaphore(QUESTIONS)
        self._clients = _Clients(lambda limit_s: library.new_client(target, limit_s))

    def session(self) -> aiohttp.ClientSession:
        """The HTTP client, created at first use."""
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=ASK_S)
            self._session = aiohttp.ClientSession(
                connector=self.target.connector(), timeout=timeout, auto_decompress=False
            )
        return self._session

    def require_socket(self) -> None:
        """Fail at once when the socket does not exist."""
        if self.target.is_absent():
            raise EngineDown(self.target.absence_text(self.name))

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        headers: Query | None = None,
        idle_s: float | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A streamed answer; `idle_s` bounds the wait for each piece."""
        self.require_socket()
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=ASK_S, sock_read=idle_s)
        is_plain = isinstance(body, dict)
        try:
            async with self.session().request(
                method,
                self.target.base_url + self.prefix + path,
                params=query,
                json=body if is_plain else None,
                data=None if is_plain else body,
                headers=headers,
                timeout=timeout,
            ) as response:
                await self._raise_for_status(response)
                yield response
        except TimeoutError:
            raise EngineDown(f"the {self.name} engine at {self.target.endpoint} does not answer") from None
        except (aiohttp.ClientError, OSError) as error:
            raise self.unreachable(error) from None

    def unreachable(self, error: Exception) -> EngineDown:
        """The error for an unreachable engine."""
        return EngineDown(f"the {self.name} engine at {self.target.endpoint} cannot be reached: {error}")

    async def ask(self, path: str, query: Query | None = None, *, is_urgent: bool = False) -> Any:
        """A query with a JSON answer, on the event loop and with a short time limit; urgent ones bypass the queue.

        Docker answers nothing, with status 200, about the usage of a container that is removed at that moment.
        """
        waiting = nullcontext() if is_urgent else self._asking
        try:
            async with waiting, asyncio.timeout(ASK_S), self.stream("GET", path, query=query) as response:
                data = await response.content.read(-1)
            return json.loads(data)
        except TimeoutError:
            raise EngineDown(f"the {self.name} engine did not answer {path} within {ASK_S:g} s") from None
        except ValueError:
            raise EngineDown(f"the {self.name} engine gave no JSON for {path}: {data[:80]!r}") from None

    async def act(self, do: Callable[[Any], T], *, slow: bool = False) -> T:
        """Call the package in the thread pool; raises our own errors, also for calls still queued at `close`."""
        self._clients.require_open()
        self.require_socket()
        limit_s = SLOW_S if slow else QUICK_S
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix=self.name)
        running = asyncio.get_running_loop().run_in_executor(self._pool, self._do, do, limit_s)
        try:
            async with asyncio.timeout(limit_s * 1.5):
                return await running
        except TimeoutError:
            raise EngineDown(f"the {self.name} engine did not answer within {limit_s * 1.5:g} s") from None
        except asyncio.CancelledError:
            asking = asyncio.current_task()
            if asking is not None and not asking.cancelling():
                self._clients.require_open()
            raise

    def _do(self, do: Callable[[Any], T], limit_s: float) -> T:
        """Make the call in a thread and translate the package's errors."""
        try:
            with self._clients.use(limit_s) as client:
                return self._library.do(do, client)
        except OSError as error:
            raise self.unreachable(error) from None

    async def warm_up(self) -> None:
        """Import the package and connect ahead of the first task."""
        await self.act(lambda client: None)
        await self.act(lambda client: None, slow=True)

    async def close(self) -> None:
        """Close sockets and threads; a call to a hanging engine ends at its time limit."""
        self._clients.close()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        if self._session is not None:
            await self._session.close()

    async def _raise_for_status(self, response: aiohttp.ClientResponse) -> None:
        """Raise the engine's error answer as one of our errors."""
        if response.status < 400:
            return
        text = (await response.content.read(LINE_BYTES_MAX)).decode(errors="replace")
        try:
            message = str(json.loads(text)["message"])
        except (ValueError, KeyError, TypeError):
            message = text.strip() or response.reason or "no reason given"
        raise failure(self.name, response.status, message)


def failure(engine: str, status: int, message: str) -> Exception:
    """Translates an engine's error answer: server errors are recoverable, invalid requests are not."""
    text = f"{engine}: {message}"
    if status == 404:
        return NotFound(text)
    reason = Reason.IN_USE if IN_USE in message else None
    if status == 409:
        return Conflict(text, reason=reason)
    is_unable = status == 501
    kind = RecoverableError if status >= 500 and not is_unable else DriverError
    return kind(text, reason=reason, status=kind.status)


async def lines_of(response: aiohttp.ClientResponse) -> AsyncIterator[Any]:
    """The JSON values of a stream with one value per line."""
    rest = b""
    async for chunk in response.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            raise EngineDown("the engine sent a line without end")
        for line in lines:
            if line.strip():
                yield json.loads(line)
    if rest.strip():
        yield json.loads(rest)
