"""Fetches a Mercurial repository by the hg program; blocking, in the child process.

hg and ssh act for the job, so they use nothing of the agent's user: no configuration, extension, key or saved password
(see `repository`). An empty HGRCPATH means that no file of settings is read. Subrepositories are refused: a repository
could name folders of the host and other programs by them.

The server is asked for the whole repository, and the revision is looked up in the copy: a server that looked up a hash
could answer with another revision. The hash of the checked-out revision is then compared.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from typing import Final

from yurt.client.artifacts.fetch_request import Fetch
from yurt.client.artifacts.repository import filtered_environment, run_program, ssh_command
from yurt.sdk.errors import Invalid

SETTINGS: Final = (
    "subrepos.allowed=false",
    "ui.interactive=false",
    "ui.timeout=30",
    "ui.clonebundles=false",
    "share.pool=",
    "progress.disable=true",
)
_HASH = re.compile(r"[0-9a-fA-F]{12,40}")
"""A hash of a revision, complete or as `hg id` shows it. Shorter ones cannot be distinguished from names."""


def clone(fetch: Fetch, path: str) -> None:
    """Clone into a new folder, at the requested revision."""
    if shutil.which("hg") is None:
        raise Invalid("hg is not on the PATH of the agent; install it (apt install mercurial) to fetch hg:: artifacts")
    rev, deadline = fetch.source.ref, time.monotonic() + fetch.limits.hg_timeout_s
    _hg(fetch, deadline, "clone", *(("--noupdate",) if rev else ()), "--", fetch.source.url, path)
    if not rev:
        return
    # In quotes, a name with a minus that the repository lacks is not read as a difference of two others.
    _hg(fetch, deadline, "-R", path, "update", "--clean", "--rev", f'"{rev}"')
    node = _hg(fetch, deadline, "-R", path, "log", "-r", ".", "-T", "{node}")
    if _HASH.fullmatch(rev) and not node.startswith(rev.lower()):
        raise Invalid(f"{fetch.source.shown} has {rev} as the name of {node}, which does not have this hash")


def _hg(fetch: Fetch, deadline: float, *words: str) -> str:
    """The output of a command; raises RecoverableError when it fails or exceeds the deadline."""
    options = ("--noninteractive", *_settings(fetch), *words)
    limit_s, left_s = fetch.limits.hg_timeout_s, deadline - time.monotonic()
    return run_program(fetch, "hg", options, environment=_environment(fetch), limit_s=limit_s, left_s=left_s)


def _settings(fetch: Fetch) -> list[str]:
    settings = [*SETTINGS, f"ui.ssh={ssh_command(fetch)}"]
    certificates = os.environ.get("SSL_CERT_FILE", "")
    if certificates:
        settings.append(f"web.cacerts={certificates}")
    words = [word for setting in settings for word in ("--config", setting)]
    return [*words, "--insecure"] if fetch.is_insecure else words


def _environment(fetch: Fetch) -> dict[str, str]:
    """The environment of hg: no settings of the host or of a folder above, no prompts, plain messages."""
    return {
        **filtered_environment(),
        "HOME": fetch.staging,
        "XDG_CONFIG_HOME": fetch.staging,
        "HGRCPATH": "",
        "HGRCSKIPREPO": "1",
        "HGPLAIN": "1",
        "PYTHONNOUSERSITE": "1",
        "LC_ALL": "C",
    }
