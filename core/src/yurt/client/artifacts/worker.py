"""Runs work in a confined worker process, forked from the process that fetches (`confinement`)."""

from __future__ import annotations

import codecs
import importlib
import os
from collections.abc import Callable
from typing import Final

import msgspec

from yurt.client.artifacts import google, package, unpacking
from yurt.client.artifacts.confinement import (
    CLONE_NEWPID,
    Ids,
    become,
    end_with_parent,
    open_way,
    restrict_files,
    unprivileged,
    unshare,
)
from yurt.client.artifacts.fetch_request import Fetch, Fetched
from yurt.client.artifacts.sources import REPOSITORIES, ZSTANDARD_ARCHIVES
from yurt.sdk.value import replace

ANSWER_BYTES_MAX: Final = 64 * 1024
CODECS: Final = ("idna", "cp437", "latin-1", "ascii", "utf-8-sig")
MODULES: Final = ("email.parser", "email.message", "email.utils", "stringprep", "unicodedata", "netrc")

Work = Callable[[Fetch], Fetched]


def run_worker(fetch: Fetch, folder: str, work: Work) -> Fetched:
    """Run `work` in a worker for a fetch with the staging folder `folder`; this process is confined from then on.

    Afterwards `folder` belongs to the worker's user, and the worker and all its children have ended.
    """
    _load(fetch)
    if fetch.package is not None:
        package.load(fetch.package)
    ids = unprivileged()
    if ids is not None:
        os.chown(folder, *ids)
        for name in os.listdir(folder):
            os.chown(f"{folder}/{name}", *ids)
    reader, writer = os.pipe()
    parent = os.getpid()
    unshare(CLONE_NEWPID)  # where it can be had, whatever the worker leaves running ends with it
    child = os.fork()
    if child == 0:
        try:
            answer = _confined(replace(fetch, staging=folder), ids, parent, work)
            os.write(writer, msgspec.json.encode(answer)[:ANSWER_BYTES_MAX])
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        restrict_files(fetch.root, ())
        output = pipe.read(ANSWER_BYTES_MAX)
    _, status = os.waitpid(child, 0)
    try:
        return msgspec.json.decode(output, type=Fetched)
    except msgspec.DecodeError:
        return Fetched(error=f"the process that fetches it ended with status {os.waitstatus_to_exitcode(status)}")


def _load(fetch: Fetch) -> None:
    """Import lazily imported modules now: the worker may not be able to read the interpreter's folder."""
    for name in CODECS:
        codecs.lookup(name)
    for name in MODULES:
        importlib.import_module(name)
    if fetch.source.archive in ZSTANDARD_ARCHIVES:
        unpacking.zstandard()
    if fetch.source.google is not None:
        google.load(fetch.source.google)


def _confined(fetch: Fetch, ids: Ids | None, parent: int, work: Work) -> Fetched:
    """Confine this process, then run the work."""
    try:
        fetch, ids = _way(fetch, ids)
        restrict_files(fetch.staging, fetch.limits.extra_paths)
        if ids is not None:
            become(ids)
        end_with_parent(parent)
        if not os.path.exists(fetch.staging):
            fetch = replace(fetch, staging=".")
    except OSError as error:
        return Fetched(error=f"the process that fetches it cannot be confined: {error.strerror or error}")
    return work(fetch)


def _way(fetch: Fetch, ids: Ids | None) -> tuple[Fetch, Ids | None]:
    """The worker's path to its folder, and its user.

    Where no way to the folder can be opened the worker names it ".". git and hg need its full name, and remain root
    then.
    """
    os.chdir(fetch.staging)
    if ids is None:
        return fetch, None
    if open_way(fetch.staging):
        os.chdir(fetch.staging)
        return fetch, ids
    if fetch.source.getter in REPOSITORIES:
        os.chown(".", 0, 0)
        return fetch, None
    return replace(fetch, staging="."), ids
