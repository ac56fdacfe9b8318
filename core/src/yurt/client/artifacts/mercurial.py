"""Fetches a Mercurial repository by the hg program; blocking, in the child process.

hg and ssh act for the job, so they use nothing of the agent's user: no configuration, extension, key or saved password
(see `repository`). An empty HGRCPATH means that no file of settings is read. Subrepositories are refused: a repository
could name folders of the host and other programs by them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Final

from yurt.client.artifacts.fetching import Fetch
from yurt.client.artifacts.repository import ERROR_CHARACTERS, kept_environment, ssh_command
from yurt.sdk.errors import Invalid, RecoverableError

SETTINGS: Final = (
    "subrepos.allowed=false",
    "ui.interactive=false",
    "ui.timeout=30",
    "share.pool=",
    "progress.disable=true",
)


def clone(fetch: Fetch, path: str) -> None:
    """Clone into a new folder, at the requested revision."""
    if shutil.which("hg") is None:
        raise Invalid("hg is not on the PATH of the agent; install it (apt install mercurial) to fetch hg:: artifacts")
    source = fetch.source
    revision = ("--updaterev", source.ref) if source.ref else ()
    try:
        done = subprocess.run(
            ["hg", "--noninteractive", *_settings(fetch), "clone", *revision, "--", source.url, path],
            env=_environment(fetch),
            cwd=fetch.staging,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=fetch.limits.hg_timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RecoverableError(
            f"{source.shown} was not cloned within {fetch.limits.hg_timeout_s:g} s (client artifact.hg_timeout)"
        ) from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").replace(source.url, source.shown).strip()
        raise RecoverableError(f"hg could not fetch {source.shown}: {said[-ERROR_CHARACTERS:]}")


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
        **kept_environment(),
        "HOME": fetch.staging,
        "XDG_CONFIG_HOME": fetch.staging,
        "HGRCPATH": "",
        "HGRCSKIPREPO": "1",
        "HGPLAIN": "1",
        "PYTHONNOUSERSITE": "1",
        "LC_ALL": "C",
    }
