"""The child process that fetches one artifact: `python -I -m yurt.client.artifacts.program`, a `Fetch` on its input.

It ends with its agent, can gain no rights, and has little memory and few files; what it writes are its staging folder,
and from there the destination. Its answer is a `Fetched` on its output.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import signal
import sys
from typing import Final

import msgspec

from yurt.client.artifacts import http, placing, repository, unpacking
from yurt.client.artifacts.fetching import MODE_DIR, MODE_FILE, Fetch, Fetched
from yurt.client.artifacts.sources import FILE, GIT, TREE_ARCHIVES
from yurt.client.safe_files import open_beneath
from yurt.sdk.errors import Invalid, YurtError

MEMORY_BYTES: Final = 4 * 1024 * 1024 * 1024
FILES_MAX: Final = 1024
PR_SET_PDEATHSIG: Final = 1
PR_SET_NO_NEW_PRIVS: Final = 38
CHUNK_BYTES: Final = 256 * 1024


def main() -> None:
    """Fetch what is asked for, and answer."""
    fetch = msgspec.json.decode(sys.stdin.buffer.read(), type=Fetch)
    restrict(fetch)
    sys.stdout.buffer.write(msgspec.json.encode(attempt(fetch)))


def restrict(fetch: Fetch) -> None:
    """Give up what is not needed."""
    os.umask(0o022)
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    largest = max(fetch.limits.http_max_bytes, fetch.limits.unpacked_bytes_max)
    for limit, wanted in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_NOFILE, FILES_MAX),
        (resource.RLIMIT_FSIZE, largest),
    ):
        _, hard = resource.getrlimit(limit)
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(limit, (most, most))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def attempt(fetch: Fetch) -> Fetched:
    """Fetch, and tell a failure as a value."""
    try:
        run(fetch)
    except Invalid as error:
        return Fetched(error=str(error), is_recoverable=False)
    except YurtError as error:
        return Fetched(error=str(error))
    except OSError as error:
        return Fetched(error=f"{error.strerror or error} ({error.filename or fetch.source.shown})")
    except MemoryError:
        return Fetched(
            error=f"{fetch.source.shown} takes more than {MEMORY_BYTES} bytes of memory", is_recoverable=False
        )
    return Fetched()


def run(fetch: Fetch) -> None:
    """Fetch into the staging folder, look at what came, put it in place."""
    tree, file = f"{fetch.staging}/tree", f"{fetch.staging}/file"
    if fetch.source.getter == GIT:
        if fetch.mode == MODE_FILE:
            raise Invalid('a repository is a folder; mode = "file" fetches one file by http')
        repository.clone(fetch, tree)
        _place(fetch, tree)
        return
    if fetch.source.getter == FILE:
        _copy_own(fetch, file)
    else:
        http.download(fetch, file)
    kind = fetch.source.archive
    if kind in TREE_ARCHIVES:
        unpacking.unpack_tree(file, kind, tree, fetch.limits)
        os.unlink(file)
        _place(fetch, tree)
    elif kind:
        unpacking.unpack_file(file, kind, f"{fetch.staging}/unpacked", fetch.limits)
        _place_file(fetch, f"{fetch.staging}/unpacked", fetch.source.file_name.removesuffix(f".{kind}"))
    else:
        _place_file(fetch, file, fetch.source.file_name)


def _copy_own(fetch: Fetch, path: str) -> None:
    """A file that the allocation has already; nothing else of the host can be an artifact."""
    name = fetch.source.url
    if os.path.isabs(name):
        beneath = name.startswith(f"{fetch.root}/")
        if not beneath:
            raise Invalid(f"{name} is outside of the allocation's directory; an artifact cannot be a file of the host")
        relative = name[len(fetch.root) + 1 :]
    else:
        relative = f"{fetch.own}/{name}"
    descriptor = open_beneath(fetch.root, relative)
    with os.fdopen(descriptor, "rb") as source, open(path, "xb") as file:
        shutil.copyfileobj(source, file, CHUNK_BYTES)


def _place(fetch: Fetch, tree: str) -> None:
    """Put a tree, or the part of it that was asked for, in place."""
    if fetch.limits.is_inspected:
        placing.check_tree(tree)
    part = placing.inside(tree, fetch.source.inside) if fetch.source.inside else tree
    if not os.path.isdir(part):
        _place_file(fetch, part, os.path.basename(part))
    elif fetch.mode == MODE_FILE:
        found = placing.only_file(part)
        _place_file(fetch, found, os.path.basename(found))
    else:
        placing.place_tree(part, fetch.root, fetch.destination, fetch.owner)


def _place_file(fetch: Fetch, path: str, name: str) -> None:
    """Put a file in place: into the destination, or, by mode, as the destination."""
    if fetch.mode == MODE_DIR:
        raise Invalid('mode = "dir" needs an archive or a repository; this is one file: use mode = "any" or "file"')
    folder = fetch.destination
    if fetch.mode == MODE_FILE:
        folder, _, name = fetch.destination.rpartition("/")
    if not name:
        raise Invalid('mode = "file" needs a destination that names the file')
    placing.place_file(path, fetch.root, folder, name=name, owner=fetch.owner)


if __name__ == "__main__":
    main()
