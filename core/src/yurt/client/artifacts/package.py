"""Calls the getter of a package in the fetching child process; its module is imported before the confinement."""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from typing import Any, Final

from yurt.client.artifacts.fetch_request import Fetch, PackageGetter, tree_size
from yurt.client.artifacts.sources import ArtifactSource
from yurt.sdk.artifacts import ArtifactGetter, ArtifactRequest
from yurt.sdk.errors import Invalid, RecoverableError, YurtError

CHUNK_BYTES: Final = 256 * 1024


def load(package: PackageGetter) -> Any:
    """The function of a getter; raises Invalid when it cannot be imported.

    The child runs isolated from the environment and the user's folders, so it takes over the agent's module path.
    """
    sys.path += [path for path in package.module_path if path and path not in sys.path]
    name = package.getter.function
    module, _, function = name.partition(":")
    try:
        return getattr(importlib.import_module(module), function)
    except (Exception, SystemExit) as error:
        raise Invalid(f"its getter {name} cannot be imported: {type(error).__name__}: {error}") from None


def download(fetch: Fetch, getter: ArtifactGetter, target: str) -> None:
    """Let the getter write a file or a folder; its errors become Invalid or RecoverableError."""
    assert fetch.package is not None
    function = load(fetch.package)
    limits, source = fetch.limits, fetch.source
    request = ArtifactRequest(
        address=source.url,
        target=target,
        parameters=source.parameters,
        headers=fetch.headers,
        is_insecure=fetch.is_insecure,
        bytes_max=limits.http_max_bytes,
        files_max=limits.file_count_max,
        time_limit_s=limits.http_read_timeout_s,
        config=getter.config,
    )
    try:
        function(request)
    except (YurtError, OSError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        raise RecoverableError(f"the getter {getter.name} failed: {type(error).__name__}: {error}") from None
    if os.path.isdir(target):
        _check_size(target, fetch, getter)
    elif os.path.isfile(target):
        _check_sum(target, source)
    else:
        raise RecoverableError(f"the getter {getter.name} returned without an artifact")


def _check_size(folder: str, fetch: Fetch, getter: ArtifactGetter) -> None:
    """Bound a folder as an archive is bounded."""
    files, size = tree_size(folder)
    if files > fetch.limits.file_count_max or size > fetch.limits.unpacked_bytes_max:
        raise Invalid(
            f"the getter {getter.name} made {files} files with {size} bytes; this client allows "
            f"{fetch.limits.file_count_max} files and {fetch.limits.unpacked_bytes_max} bytes "
            "(client artifact.decompression_file_count_limit, decompression_size_limit)"
        )


def _check_sum(path: str, source: ArtifactSource) -> None:
    expected = source.checksum
    if expected is None:
        return
    hashing = hashlib.new(expected.kind)
    with open(path, "rb") as file:
        while data := file.read(CHUNK_BYTES):
            hashing.update(data)
    if hashing.hexdigest() != expected.digest:
        raise RecoverableError(
            f"the checksum of {source.shown} is {expected.kind}:{hashing.hexdigest()}, not {expected.digest}; "
            "the file has changed, or the job names the wrong sum"
        )
