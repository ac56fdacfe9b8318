"""The request to the child process that fetches an artifact, and its answer. Pure but for `tree_size`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

from yurt.client.artifacts.sources import REPOSITORIES, ArtifactSource
from yurt.sdk.artifacts import TREE_KIND, ArtifactGetter
from yurt.sdk.value import Value, no_entries

MODE_ANY, MODE_FILE, MODE_DIR = "any", "file", "dir"
GB = 1000**3


class ArtifactLimits(Value):
    """The operator's limits on artifacts: seconds, bytes, files; and variables of the agent that downloads see.

    `extra_paths` are what a confined download may use besides the system's programs, as KIND:MODE:PATH;
    `s3_trusted_hosts` the stores besides Amazon's that get the operator's keys.
    """

    http_read_timeout_s: float = 1800.0
    http_max_bytes: int = 100 * GB
    git_timeout_s: float = 1800.0
    hg_timeout_s: float = 1800.0
    gcs_timeout_s: float = 1800.0
    s3_timeout_s: float = 1800.0
    file_count_max: int = 4096
    unpacked_bytes_max: int = 100 * GB
    is_inspected: bool = True
    is_confined: bool = True
    extra_paths: tuple[str, ...] = ()
    env_names: tuple[str, ...] = ()
    s3_trusted_hosts: tuple[str, ...] = ()


def tree_size(folder: str) -> tuple[int, int]:
    """The number of files below a folder and their bytes; files removed meanwhile count 0 bytes."""
    files = size = 0
    for place, _, names in os.walk(folder):
        files += len(names)
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                size += os.lstat(os.path.join(place, name)).st_size
    return files, size


class PackageGetter(Value):
    """The getter of a package, and the agent's module path, by which the child finds its module."""

    getter: ArtifactGetter
    module_path: tuple[str, ...] = ()


class Fetch(Value):
    """One artifact to fetch into a directory tree.

    `destination` is taken from `root`, the allocation's directory, and never leaves it; `staging` is a folder of the
    same tree that only the agent can enter; a source that is a file is taken from `own`, the task's folder in `root`.
    If that file has several names, one of `link_owners` must own it; None is anybody.
    """

    source: ArtifactSource
    root: str
    own: str
    destination: str
    staging: str
    mode: str = MODE_ANY
    headers: Mapping[str, str] = no_entries()
    is_insecure: bool = False
    owner: tuple[int, int] | None = None
    link_owners: tuple[int, ...] | None = None
    limits: ArtifactLimits = ArtifactLimits()
    package: PackageGetter | None = None


def makes_tree(fetch: Fetch) -> bool:
    """Whether its getter makes a folder instead of a file."""
    if fetch.package is not None:
        return fetch.package.getter.makes == TREE_KIND
    return fetch.source.getter in REPOSITORIES


def time_limit(fetch: Fetch) -> tuple[float, str]:
    """The time limit of a download in seconds, and the name of the agent's setting for it."""
    limits = fetch.limits
    match fetch.source.getter:
        case "git":
            return limits.git_timeout_s, "git_timeout"
        case "hg":
            return limits.hg_timeout_s, "hg_timeout"
        case "gcs":
            return limits.gcs_timeout_s, "gcs_timeout"
        case "s3":
            return limits.s3_timeout_s, "s3_timeout"
        case _:
            return limits.http_read_timeout_s, "http_read_timeout"


class Fetched(Value):
    """The outcome; an empty `error` is success."""

    error: str = ""
    is_recoverable: bool = True
