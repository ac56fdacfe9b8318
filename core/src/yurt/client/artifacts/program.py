"""The child process that fetches one artifact: `python -I -m yurt.client.artifacts.program`, a `Fetch` on its input.

It ends with its agent, can gain no rights, and has little memory and few files. What touches a stranger's bytes runs in
a worker that is confined (see `confinement`); what came is then put in place. Its answer is a `Fetched` on its output.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from typing import Final

import msgspec

from yurt.client.artifacts import destination, google, http, mercurial, package, repository, unpacking
from yurt.client.artifacts.destination import Arrivals
from yurt.client.artifacts.fetch_request import MODE_DIR, MODE_FILE, Fetch, Fetched, makes_tree
from yurt.client.artifacts.sources import FILE, GIT, HG, TREE_ARCHIVES
from yurt.client.artifacts.worker import run_worker
from yurt.client.files.safe_files import open_beneath
from yurt.sdk.errors import Invalid, RecoverableError, YurtError
from yurt.sdk.value import replace

MEMORY_BYTES: Final = 4 * 1024 * 1024 * 1024
FILES_MAX: Final = 1024
PR_SET_PDEATHSIG: Final = 1
PR_SET_NO_NEW_PRIVS: Final = 38
CHUNK_BYTES: Final = 256 * 1024


def main() -> None:
    """Read a `Fetch`, carry it out, write the answer."""
    fetch = msgspec.json.decode(sys.stdin.buffer.read(), type=Fetch)
    restrict(fetch)
    sys.stdout.buffer.write(msgspec.json.encode(attempt(fetch, run)))


def restrict(fetch: Fetch) -> None:
    """Drop privileges and set limits."""
    os.umask(0o022)
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    largest = max(fetch.limits.http_max_bytes, fetch.limits.unpacked_bytes_max)
    for limit, limit_value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_NOFILE, FILES_MAX),
        (resource.RLIMIT_FSIZE, largest),
    ):
        _, hard = resource.getrlimit(limit)
        most = limit_value if hard == resource.RLIM_INFINITY else min(limit_value, hard)
        resource.setrlimit(limit, (most, most))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def attempt(fetch: Fetch, action: Callable[[Fetch], None]) -> Fetched:
    """Fetch, and return a failure as a value."""
    try:
        action(fetch)
    except Invalid as error:
        return Fetched(error=printable(str(error)), is_recoverable=False)
    except YurtError as error:
        return Fetched(error=printable(str(error)))
    except OSError as error:
        return Fetched(error=printable(f"{error.strerror or error} ({error.filename or fetch.source.shown})"))
    except MemoryError:
        return Fetched(
            error=f"{fetch.source.shown} takes more than {MEMORY_BYTES} bytes of memory", is_recoverable=False
        )
    return Fetched()


def printable(text: str) -> str:
    """A text that JSON can hold, with undecodable bytes replaced."""
    return text.encode(errors="backslashreplace").decode()


def run(fetch: Fetch) -> None:
    """Fetch into the staging folder, check the result, move it to the destination."""
    if makes_tree(fetch) and fetch.mode == MODE_FILE:
        raise Invalid('the artifact is a folder; mode = "file" fetches one file by http')
    folder = f"{fetch.staging}/work"
    os.mkdir(folder, 0o700)
    if fetch.source.getter == FILE:
        _copy_own(fetch, f"{folder}/file")
    fetch = google.with_credentials(fetch)
    is_confined = fetch.limits.is_confined and sys.platform == "linux"
    if is_confined:
        fetched = run_worker(fetch, folder, lambda worker_fetch: attempt(worker_fetch, produce))
        if fetched.error:
            raise RecoverableError(fetched.error) if fetched.is_recoverable else Invalid(fetched.error)
    else:
        produce(replace(fetch, staging=folder))
    arrivals = Arrivals(os.stat(folder).st_uid, _owner(fetch) if is_confined else fetch.owner)
    kind = fetch.source.archive
    if makes_tree(fetch) or kind in TREE_ARCHIVES:
        _place(fetch, f"{folder}/tree", arrivals)
    elif kind:
        _place_file(fetch, f"{folder}/unpacked", fetch.source.file_name.removesuffix(f".{kind}"), arrivals)
    else:
        _place_file(fetch, f"{folder}/file", fetch.source.file_name, arrivals)


def _owner(fetch: Fetch) -> tuple[int, int] | None:
    """The owner of the files: the task's user when the job asks for `chown`, else the agent's."""
    return fetch.owner or ((os.geteuid(), os.getegid()) if os.geteuid() == 0 else None)


def produce(fetch: Fetch) -> None:
    """Download and unpack into the staging folder: `tree`, `unpacked` or `file`."""
    file, kind = f"{fetch.staging}/file", fetch.source.archive
    if fetch.package is not None:
        package.download(fetch, fetch.package.getter, f"{fetch.staging}/tree" if makes_tree(fetch) else file)
        if makes_tree(fetch):
            return
    elif fetch.source.getter == GIT:
        repository.clone(fetch, f"{fetch.staging}/tree")
        return
    elif fetch.source.getter == HG:
        mercurial.clone(fetch, f"{fetch.staging}/tree")
        return
    elif fetch.source.getter != FILE:
        http.download(fetch, file)
    if kind in TREE_ARCHIVES:
        unpacking.unpack_tree(file, kind, f"{fetch.staging}/tree", fetch.limits)
        os.unlink(file)
    elif kind:
        unpacking.unpack_file(file, kind, f"{fetch.staging}/unpacked", fetch.limits)


def _copy_own(fetch: Fetch, path: str) -> None:
    """Copy a file of the allocation's own directory; no other file of the host can be an artifact."""
    name = fetch.source.url
    if os.path.isabs(name):
        beneath = name.startswith(f"{fetch.root}/")
        if not beneath:
            raise Invalid(f"{name} is outside of the allocation's directory; an artifact cannot be a file of the host")
        relative = name[len(fetch.root) + 1 :]
    else:
        relative = f"{fetch.own}/{name}"
    descriptor = open_beneath(
        fetch.root, relative, owners=None if fetch.link_owners is None else frozenset(fetch.link_owners)
    )
    with os.fdopen(descriptor, "rb") as source, open(path, "xb") as file:
        shutil.copyfileobj(source, file, CHUNK_BYTES)


def _place(fetch: Fetch, tree: str, arrivals: Arrivals) -> None:
    """Move a tree, or the requested part of it, to the destination."""
    if fetch.limits.is_inspected:
        destination.check_tree(tree)
    part = destination.inside(tree, fetch.source.inside) if fetch.source.inside else tree
    if not os.path.isdir(part):
        _place_file(fetch, part, os.path.basename(part), arrivals)
    elif fetch.mode == MODE_FILE:
        found = destination.only_file(part)
        _place_file(fetch, found, os.path.basename(found), arrivals)
    else:
        destination.place_tree(part, fetch.root, fetch.destination, arrivals)


def _place_file(fetch: Fetch, path: str, name: str, arrivals: Arrivals) -> None:
    """Move a file into the destination or, by mode, to it."""
    if fetch.mode == MODE_DIR:
        raise Invalid('mode = "dir" needs an archive or a repository; this is one file: use mode = "any" or "file"')
    folder = fetch.destination
    if fetch.mode == MODE_FILE:
        folder, _, name = fetch.destination.rpartition("/")
    if not name:
        raise Invalid('mode = "file" needs a destination that names the file')
    destination.place_file(path, fetch.root, folder, name=name, arrivals=arrivals)


if __name__ == "__main__":
    main()
