"""Downloads a task's artifacts before it starts, each in a child process of its own, at most `PARALLEL` at once.

An artifact is not fetched again when the task restarts, because its digest is stored with the task.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import posixpath
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from yurt.client.artifacts.fetch_request import ArtifactLimits, Fetch, Fetched, PackageGetter, time_limit, tree_size
from yurt.client.artifacts.sources import parse_source, shown_url
from yurt.client.files.safe_files import Owners
from yurt.client.files.users import ids_of
from yurt.client.task_env import replace_in, replace_references
from yurt.runtime.env import Env
from yurt.sdk.artifacts import ArtifactGetter
from yurt.sdk.driver import TaskDirs
from yurt.sdk.errors import Invalid, RecoverableError
from yurt.sdk.value import Value, replace
from yurt.structs.task import TaskArtifact

PROGRAM = ("-I", "-m", "yurt.client.artifacts.program")
PARALLEL = 3
UNPACK_LIMIT_S = 1800.0
STAGING = ".fetch"
WORK = "work"
"""The folder below the staging folder in which the process works."""
FIRST_REPORT_S = 10.0
NEXT_REPORT_S = 120.0
"""Seconds until the first and between later reports of a download, as of images: its events push out others."""
MIB = 1 << 20
PASSED_ENV = ("PATH", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR")

log = logging.getLogger(__name__)


class TaskPlace(Value):
    """The task that artifacts are for; `dirs` are its directories on the host."""

    task_name: str
    dirs: TaskDirs
    user: str = ""
    link_owners: Owners = None


def plan(
    artifacts: tuple[TaskArtifact, ...],
    place: TaskPlace,
    *,
    lookup: Callable[[str], str | None],
    limits: ArtifactLimits,
    added: Mapping[str, ArtifactGetter] | None = None,
) -> dict[str, Fetch]:
    """The fetches of a task by a digest of each artifact's declaration; raises Invalid."""
    fetches = {}
    for number, artifact in enumerate(artifacts):
        fetch = fetch_of(artifact, place, lookup=lookup, limits=limits, added=added or {})
        digest = hashlib.blake2b(msgspec.json.encode(fetch), digest_size=16).hexdigest()
        staging = os.path.join(place.dirs.alloc_dir, f"{STAGING}-{place.task_name}-{number}")
        # Neither folder says anything about the artifact: a digest without them survives an upgrade of the agent.
        package = None if fetch.package is None else replace(fetch.package, module_path=tuple(sys.path))
        fetches[digest] = replace(fetch, staging=staging, package=package)
    return fetches


def fetch_of(
    artifact: TaskArtifact, place: TaskPlace, *, lookup: Callable[[str], str | None], limits: ArtifactLimits,
    added: Mapping[str, ArtifactGetter],
) -> Fetch:  # fmt: skip
    """The fetch of one artifact, with its references interpolated."""
    dirs = place.dirs
    on_host = {
        "NOMAD_ALLOC_DIR": dirs.shared_dir,
        "NOMAD_TASK_DIR": dirs.local_dir,
        "NOMAD_SECRETS_DIR": dirs.secrets_dir,
    }

    def look(name: str) -> str | None:
        return on_host.get(name) or lookup(name)

    text = replace_references(artifact.getter_source, look)
    try:
        source = parse_source(text, replace_in(artifact.getter_options, look), added)
        getter = added.get(source.getter)
        return Fetch(
            source=source,
            root=dirs.alloc_dir,
            own=os.path.basename(dirs.task_dir),
            destination=destination(replace_references(artifact.relative_dest, look), dirs),
            staging="",
            mode=artifact.getter_mode or "any",
            headers=replace_in(artifact.getter_headers, look),
            is_insecure=artifact.getter_insecure,
            owner=ids_of(place.user) if artifact.chown else None,
            link_owners=None if place.link_owners is None else tuple(sorted(place.link_owners)),
            limits=limits,
            package=None if getter is None else PackageGetter(getter=getter),
        )
    except Invalid as error:
        raise Invalid(failure_text(shown_url(text), str(error))) from None


def destination(text: str, dirs: TaskDirs) -> str:
    """The destination of an artifact below the allocation's directory; a relative path starts in the task's."""
    own = os.path.basename(dirs.task_dir)
    is_beneath = text == dirs.alloc_dir or text.startswith(f"{dirs.alloc_dir}/")
    path = text[len(dirs.alloc_dir) :].lstrip("/") if is_beneath else posixpath.join(own, text.lstrip("/"))
    normal = posixpath.normpath(path or ".")
    if normal == ".." or normal.startswith("../") or "\0" in normal:
        raise Invalid(f"its destination {text!r} leaves the allocation's directory")
    return normal


def failure_text(source: str, reason: str) -> str:
    """The message of a failed download, in Nomad's words."""
    return f'failed to download artifact "{source}": {reason}'


async def fetch_all(
    fetches: Mapping[str, Fetch], *, on_done: Callable[[str], None], progress: ProgressReport | None = None
) -> None:
    """Fetch all artifacts; the first failure cancels the others and is raised as Invalid or RecoverableError.

    `progress` reports the bytes of each long download.
    """
    slots = asyncio.Semaphore(PARALLEL)

    async def one(digest: str, fetch: Fetch) -> None:
        async with slots:
            reporting = group.create_task(progress.follow(fetch)) if progress is not None else None
            try:
                await fetch_one(fetch)
            finally:
                if reporting is not None:
                    reporting.cancel()
        on_done(digest)

    try:
        async with asyncio.TaskGroup() as group:
            for digest, fetch in fetches.items():
                group.create_task(one(digest, fetch))
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


class ProgressReport(NamedTuple):
    """Receives the progress of downloads."""

    env: Env
    report: Callable[[str], None]

    async def follow(self, fetch: Fetch) -> None:
        """Report how much of an artifact has been downloaded, until cancelled."""
        wait_s = FIRST_REPORT_S
        while True:
            await self.env.sleep(wait_s)
            size, is_complete = await self.env.in_thread(_downloaded, os.path.join(fetch.staging, WORK))
            ending = ", it is unpacked now" if is_complete else ""
            self.report(f'Downloading artifact "{fetch.source.shown}": {size / MIB:.1f} MiB downloaded{ending}')
            wait_s = NEXT_REPORT_S


def _downloaded(folder: str) -> tuple[int, bool]:
    """The bytes of an artifact that have arrived, and whether it is complete; a repository is a tree of files."""
    with contextlib.suppress(OSError):
        size = os.lstat(os.path.join(folder, "file")).st_size
        return size, any(os.path.lexists(os.path.join(folder, name)) for name in ("tree", "unpacked"))
    return tree_size(folder)[1], False


async def fetch_one(fetch: Fetch) -> None:
    """Fetch one artifact; its child process and staging folder are always removed afterwards."""
    await asyncio.to_thread(_make_staging, fetch.staging)
    try:
        fetched = await _run_program(fetch)
    finally:
        await asyncio.to_thread(shutil.rmtree, fetch.staging, ignore_errors=True)
    if fetched.error:
        text = failure_text(fetch.source.shown, fetched.error)
        raise RecoverableError(text) if fetched.is_recoverable else Invalid(text)


def _make_staging(path: str) -> None:
    """Make an empty folder that only the agent can enter."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)
    os.mkdir(path, 0o700)


async def _run_program(fetch: Fetch) -> Fetched:
    names = (*PASSED_ENV, *fetch.limits.env_names)
    env = {name: os.environ[name] for name in names if name in os.environ} | {"TMPDIR": fetch.staging}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *PROGRAM,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        cwd="/",
        env=env,
    )
    limit_s = time_limit_s(fetch)
    try:
        async with asyncio.timeout(limit_s):
            answer, problems = await process.communicate(msgspec.json.encode(fetch))
    except TimeoutError:
        return Fetched(error=f"it was not done within {limit_s:g} s")
    finally:
        await _end(process)
    try:
        return msgspec.json.decode(answer, type=Fetched)
    except msgspec.DecodeError:
        output = problems.decode(errors="replace")[-2000:]
        log.warning("artifact process failed: source=%s output=%s", fetch.source.shown, output)
        return Fetched(error=f"the process that fetches it ended with {process.returncode}")


def time_limit_s(fetch: Fetch) -> float:
    """The time limit of a fetch, unpacking included."""
    return UNPACK_LIMIT_S + time_limit(fetch)[0]


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the process with its children, such as git."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
