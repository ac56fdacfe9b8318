"""`yurt operator debug`: a support archive with the state of servers and nodes.

Three kinds of files: `cluster/` holds facts that do not change and the event stream; `nomad/0000/`, `nomad/0001/` and
so on hold the lists of objects at each interval; `server/<name>/` and `client/<id>/` hold the log of each agent over
the whole time with its machine, profiles, threads and tasks. `errors.json` names what could not be collected; that is
no failure of the command.
"""

from __future__ import annotations

import io
import json
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from yurt.api.uuids import uuid_prefix
from yurt.cli.declaration import VERBOSE, CliCommand, Invocation
from yurt.cli.errors import BrokenOff, CliError, Unreachable, UsageError
from yurt.cli.flags import number, switch, text
from yurt.cli.json_object import Json
from yurt.cli.terminal.text import SECOND, parse_duration
from yurt.sdk.errors import YurtError

if TYPE_CHECKING:
    import tarfile
    from pathlib import Path

    from yurt.cli.api.client import Query


SILENCE_S = 20.0
LOG_BYTES_MAX = 64 * 1024 * 1024
UNIT = "yurt"
"""The systemd unit whose journal has the past logs."""
CLUSTER = {
    "agent-self": "/v1/agent/self", "members": "/v1/agent/members", "leader": "/v1/status/leader",
    "peers": "/v1/status/peers", "regions": "/v1/regions", "namespaces": "/v1/namespaces",
    "autopilot-health": "/v1/operator/autopilot/health", "raft": "/v1/operator/raft/configuration",
    "scheduler": "/v1/operator/scheduler/configuration", "schedulers": "/v1/agent/schedulers",
}  # fmt: skip
LISTS = {
    "jobs": "/v1/jobs", "nodes": "/v1/nodes", "allocations": "/v1/allocations", "evaluations": "/v1/evaluations",
    "deployments": "/v1/deployments", "volumes": "/v1/volumes", "plugins": "/v1/plugins", "metrics": "/v1/metrics",
}  # fmt: skip


class DebugTarget(NamedTuple):
    """An agent: the folder of its files, and the parameter that names it."""

    folder: str
    query: dict[str, str]


class DebugTimes(NamedTuple):
    """How long, and how often, seconds."""

    duration_s: float
    interval_s: float
    profile_s: int
    profile_interval_s: float


class Bundle:
    """The archive; used by several threads."""

    def __init__(self, tar: tarfile.TarFile, name: str) -> None:
        self.errors: dict[str, str] = {}
        self.files = 0
        self._tar = tar
        self._name = name
        self._lock = threading.Lock()

    def add(self, name: str, data: bytes) -> None:
        """One file."""
        import tarfile

        info = tarfile.TarInfo(f"{self._name}/{name}")
        info.size, info.mode, info.mtime = len(data), 0o600, int(time.time())
        with self._lock:
            self._tar.addfile(info, io.BytesIO(data))
            self.files += 1

    def take(self, name: str, get: Callable[[], bytes]) -> None:
        """Add one file, or the reason why it is missing."""
        try:
            data = get()
        except YurtError as error:
            with self._lock:
                self.errors[name] = str(error)
        else:
            self.add(name, data)


class Capture:
    """One capture: all requests go to one agent, which forwards those about others."""

    def __init__(self, call: Invocation, bundle: Bundle, times: DebugTimes) -> None:
        self._call = call
        self._bundle = bundle
        self._times = times
        self._stale = {"stale": ""} if call.flags.is_on("stale") else {}

    def run(self, targets: list[DebugTarget]) -> None:
        """Gather until the time is over."""
        end_s = time.monotonic() + self._times.duration_s
        work: list[Callable[[], None]] = [partial(self._log, each) for each in targets]
        work += [partial(self._profiles, each, end_s) for each in targets]
        work += [partial(self._past_log, each) for each in targets if self._past_query()]
        if _topics(self._call):
            work.append(self._events)
        threads = [threading.Thread(target=each) for each in work]
        for thread in threads:
            thread.start()
        for name, path in CLUSTER.items():
            self._json(f"cluster/{name}.json", path, {})
        for target in targets:
            self._json(f"{target.folder}/agent-host.json", "/v1/agent/host", target.query)
        number_ = 0
        while True:
            self._once(f"{number_:04}", targets)
            number_ += 1
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                break
            time.sleep(min(left_s, self._times.interval_s))
        for thread in threads:
            thread.join()

    def _once(self, number_: str, targets: list[DebugTarget]) -> None:
        """The lists of objects, and where the threads and tasks of each agent are."""
        for name, path in LISTS.items():
            is_of_namespaces = name in ("jobs", "allocations", "evaluations", "deployments", "volumes")
            query = {"namespace": "*"} if is_of_namespaces else {}
            self._json(f"nomad/{number_}/{name}.json", path, {**query, **self._stale})
        for target in targets:
            for debug in ("1", "2"):
                self._text(target, "goroutine", {"debug": debug}, name=f"goroutine-debug{debug}_{number_}")

    def _json(self, name: str, path: str, query: dict[str, str]) -> None:
        api = self._call.api
        is_config = path == CLUSTER["agent-self"]

        def get() -> bytes:
            """Agents redact the secrets of their configuration; those of older versions left some."""
            from yurt.api.redaction import redacted

            answer = api.get(path, query)
            return json.dumps(redacted(answer) if is_config else answer, indent=1).encode()

        self._bundle.take(name, get)

    def _profiles(self, target: DebugTarget, end_s: float) -> None:
        """What an agent's threads do, again at each interval of profiles."""
        number_ = 0
        while True:
            began_s = time.monotonic()
            self._text(target, "profile", {"seconds": str(self._times.profile_s)}, name=f"profile_{number_:04}")
            number_ += 1
            next_s = began_s + self._times.profile_interval_s
            if next_s >= end_s:
                return
            time.sleep(max(0.0, next_s - time.monotonic()))

    def _past_query(self) -> dict[str, str]:
        """The query for past logs; empty when not requested."""
        flags = self._call.flags
        since = flags.text("log-lookback")
        if not since and not flags.is_on("log-file-export"):
            return {}
        source = {"on_disk": "true"} if flags.is_on("log-file-export") else {"service_name": UNIT}
        return source | ({"logs_since": since} if since else {})

    def _past_log(self, target: DebugTarget) -> None:
        """What an agent logged before the capture."""
        api, query = self._call.api, {**target.query, **self._past_query(), "plain": "true"}

        def read() -> bytes:
            lines = bytearray()
            for piece in api.stream("/v1/agent/monitor/export", query, silence_s=SILENCE_S):
                lines.extend(piece)
                if len(lines) > LOG_BYTES_MAX:
                    break
            return bytes(lines)

        self._bundle.take(f"{target.folder}/monitor_export.log", read)

    def _events(self) -> None:
        """The event stream until the time is over."""
        query: Query = {
            "topic": _topics(self._call), "index": self._call.flags.number("event-index"), "namespace": "*",
        }  # fmt: skip

        def read() -> bytes:
            return self._until_over("/v1/event/stream", query)

        self._bundle.take("cluster/eventstream.json", read)

    def _until_over(self, path: str, query: Query) -> bytes:
        """A stream's content until the time is over."""
        from yurt.cli.api.client import ApiClient

        api, end_s, found = ApiClient(self._call.api.connection), time.monotonic() + self._times.duration_s, bytearray()
        pieces = api.stream(path, query, silence_s=max(0.1, self._times.duration_s))
        try:
            for piece in pieces:
                found.extend(piece)
                if time.monotonic() >= end_s or len(found) > LOG_BYTES_MAX:
                    break
        except Unreachable:
            if not found and time.monotonic() < end_s:
                raise
        except BrokenOff as error:
            found.extend(f"{error}\n".encode())
        finally:
            pieces.close()
        return bytes(found)

    def _text(self, target: DebugTarget, profile: str, query: dict[str, str], *, name: str = "") -> None:
        merged: Query = {**target.query, **query}
        api, path = self._call.api, f"/v1/agent/pprof/{profile}"
        self._bundle.take(f"{target.folder}/{name or profile}.txt", lambda: b"".join(api.stream(path, merged)))

    def _log(self, target: DebugTarget) -> None:
        """The log of an agent until the time is over, on a separate connection."""
        from yurt.cli.api.client import ApiClient
        from yurt.cli.api.frames import data_of, frames

        api, flags = ApiClient(self._call.api.connection), self._call.flags
        query: Query = {
            **target.query,
            "log_level": flags.text("log-level"),
            "log_include_location": flags.is_on("log-include-location") or None,
            "plain": False,
        }
        end_s = time.monotonic() + self._times.duration_s
        lines = bytearray()

        def read() -> bytes:
            try:
                for frame in frames(api, "/v1/agent/monitor", query, silence_s=SILENCE_S):
                    lines.extend(data_of(frame))
                    if time.monotonic() >= end_s or len(lines) > LOG_BYTES_MAX:
                        break
            except BrokenOff as error:
                lines.extend(f"{error}\n".encode())
            return bytes(lines)

        self._bundle.take(f"{target.folder}/monitor.log", read)


def collect(call: Invocation) -> int:
    """Collect the requested data into one archive, or a folder."""
    from pathlib import Path

    times = DebugTimes(
        duration_s=_seconds(call, "duration"),
        interval_s=_seconds(call, "interval"),
        profile_s=max(1, round(_seconds(call, "pprof-duration"))),
        profile_interval_s=_seconds(call, "pprof-interval"),
    )
    if call.flags.text("log-lookback"):
        _seconds(call, "log-lookback")
    targets = [*_servers(call), *_nodes(call)]
    name = time.strftime("yurt-debug-%Y-%m-%d-%H%M%SZ", time.gmtime())
    path = Path(call.flags.text("output") or ".") / f"{name}.tar.gz"
    say = call.screen.line
    say("Starting debugger...\n")
    say(f"Servers: {_summary(targets, 'server')}\nClients: {_summary(targets, 'client')}")
    say(f"Interval: {call.flags.text('interval')}\nDuration: {call.flags.text('duration')}\n")
    bundle = _write(call, path, name, lambda made: Capture(call, made, times).run(targets))
    for wrong, why in sorted(bundle.errors.items()) if call.is_verbose else ():
        say(f"{wrong}: {why}")
    if bundle.errors:
        files = len(bundle.errors) + bundle.files
        say(f"{len(bundle.errors)} of {files} files could not be collected; errors.json says why")
    say(f"Created debug archive: {path}")
    return 0


def _write(call: Invocation, path: Path, name: str, fill: Callable[[Bundle], None]) -> Bundle:
    """The archive with its list of errors; readable only by its owner, and never overwriting."""
    import tarfile

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file,
            tarfile.open(fileobj=file, mode="w:gz") as tar,
        ):
            bundle = Bundle(tar, name)
            fill(bundle)
            bundle.add("errors.json", json.dumps(bundle.errors, indent=1).encode())
    except OSError as error:
        raise CliError(f"{path}: cannot be written: {error.strerror}") from None
    return bundle


def _seconds(call: Invocation, flag: str) -> float:
    value = call.flags.text(flag)
    try:
        found = parse_duration(value) / SECOND
    except ValueError:
        found = -1.0
    if found <= 0:
        raise UsageError(f'-{flag} must be a duration such as 30s, not "{value}"')
    return found


def _topics(call: Invocation) -> tuple[str, ...]:
    """The topics of the event stream, as the API takes them."""
    return tuple(sorted(_requested(call, "event-topic")))


def _servers(call: Invocation) -> list[DebugTarget]:
    """The requested live servers of the agent's region."""
    requested = _requested(call, "server-id")
    members: Json = call.api.get("/v1/agent/members") or {}
    region = call.api.connection.region or members.get("ServerRegion")
    rows = [each for each in members.get("Members") or () if each["Tags"].get("region") == region]
    names = [each["Name"] for each in rows if each["Status"] == "alive"]
    if "leader" in requested:
        address: str = call.api.get("/v1/status/leader")
        requested |= {each["Name"] for each in rows if f"{each['Tags']['rpc_addr']}:{each['Tags']['port']}" == address}
    chosen = [name for name in names if "all" in requested or requested & {name, name.rpartition(".")[0]}]
    if not chosen and requested:
        raise CliError(
            f"None of these servers is alive: {', '.join(sorted(requested))}; `yurt server members` lists all"
        )
    return [DebugTarget(f"server/{name}", {"server_id": name}) for name in chosen]


def _nodes(call: Invocation) -> list[DebugTarget]:
    """The requested nodes, up to -max-nodes."""
    requested, of_class = _requested(call, "node-id"), call.flags.text("node-class")
    rows: list[Json] = call.api.get("/v1/nodes") or [] if requested else []
    ready = [each for each in rows if each["Status"] == "ready" and (not of_class or each["NodeClass"] == of_class)]
    prefixes = tuple(uuid_prefix(each) for each in requested)
    ids = [each["ID"] for each in ready if "all" in requested or each["ID"].startswith(prefixes)]
    return [DebugTarget(f"client/{node_id}", {"node_id": node_id}) for node_id in ids[: call.flags.number("max-nodes")]]


def _requested(call: Invocation, flag: str) -> set[str]:
    return {word.strip() for word in call.flags.text(flag).split(",")} - {"", "none"}


def _summary(targets: list[DebugTarget], kind: str) -> str:
    found = [each.folder.partition("/")[2] for each in targets if each.folder.startswith(f"{kind}/")]
    return f"({len(found)}) [{' '.join(found)}]"


COMMANDS = (
    CliCommand(
        "operator debug",
        "Collect what helps to find a fault, in one archive",
        collect,
        (
            text("duration", "How long to collect.", default="5m"),
            text("interval", "Interval between two captures of the state.", default="30s"),
            text("log-level", "The level of the logs: TRACE, DEBUG, INFO, WARN or ERROR.", default="TRACE"),
            text("server-id", "Comma-separated names of servers, or leader, all, none.", default="all"),
            text("node-id", "Comma-separated ids of nodes or prefixes of ids, or all, none.", default="all"),
            text("node-class", "Only nodes of this class."),
            number("max-nodes", "The maximum number of nodes.", default=10),
            text("pprof-duration", "The length of each profile.", default="1s"),
            text("pprof-interval", "The interval between two profiles.", default="30s"),
            text(
                "event-topic",
                "Comma-separated topics of the event stream, such as Job,Allocation:*; * for all, or none.",
                default="none",
            ),
            number("event-index", "Events from this index on, as far as servers keep them; 0: new ones."),
            text("log-lookback", "Also what agents logged before, such as 2h, from the journal of the unit yurt."),
            switch("log-file-export", "Take what agents logged before from their log files."),
            switch("log-include-location", "Each line of the logs names the line of source that logged it."),
            text("output", "The folder for the archive (default: the current one)."),
            switch("stale", "Read lists from any server, also without a leader."),
            VERBOSE,
        ),
        details=(
            "The archive holds state, events, logs, profiles, threads and tasks of servers and nodes.\n\n"
            "Writes yurt-debug-<time>.tar.gz, which only its owner can read. Machines, threads and tasks are "
            "included only for agents with enable_debug = true; errors.json lists missing data. No file holds "
            "values of variables, tokens or keys."
        ),
    ),
)
