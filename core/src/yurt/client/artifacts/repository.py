"""Fetching a git repository by the git program; blocking, in the child process."""

from __future__ import annotations

import base64
import binascii
import os
import shutil
import subprocess
from typing import Final

from yurt.client.artifacts.fetching import Fetch
from yurt.sdk.errors import Invalid, RecoverableError

PROTOCOLS: Final = "http:https:ssh:git"
ERROR_CHARACTERS: Final = 400
SSH: Final = "ssh -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
SETTINGS: Final = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "credential.helper=",
    "advice.detachedHead=false",
)


def clone(fetch: Fetch, path: str) -> None:
    """Clone into a new folder, at the ref that was asked for, with its submodules."""
    if shutil.which("git") is None:
        raise Invalid("git is not on the PATH of the agent; install it (apt install git) to fetch repositories")
    source = fetch.source
    depth = ("--depth", str(source.depth)) if source.depth else ()
    if source.depth and source.ref:
        _git(fetch, "clone", *depth, "--branch", source.ref, "--", source.url, path)
    else:
        _git(fetch, "clone", *depth, "--", source.url, path)
    if source.ref and not source.depth:
        _git(fetch, "-C", path, "checkout", "--quiet", source.ref, "--")
    if os.path.exists(f"{path}/.gitmodules"):
        _git(fetch, "-C", path, "submodule", "update", "--init", "--recursive", *depth)


def _git(fetch: Fetch, *words: str) -> None:
    settings = [word for setting in SETTINGS for word in ("-c", setting)]
    if fetch.is_insecure:
        settings += ["-c", "http.sslVerify=false"]
    try:
        done = subprocess.run(
            ["git", *settings, *words],
            env=_environment(fetch),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=fetch.limits.git_timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RecoverableError(
            f"{fetch.source.shown} was not cloned within {fetch.limits.git_timeout_s:g} s (client artifact.git_timeout)"
        ) from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").replace(fetch.source.url, fetch.source.shown).strip()
        raise RecoverableError(f"git could not fetch {fetch.source.shown}: {said[-ERROR_CHARACTERS:]}")


def _environment(fetch: Fetch) -> dict[str, str]:
    """No configuration of the host, no prompts, no local paths; the key when one was given."""
    env = {
        **os.environ,
        "HOME": fetch.staging,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": PROTOCOLS,
        "GIT_SSH_COMMAND": SSH,
        "LC_ALL": "C",
    }
    if fetch.source.ssh_key:
        env["GIT_SSH_COMMAND"] = f"{SSH} -o IdentitiesOnly=yes -i {_write_key(fetch)}"
    return env


def _write_key(fetch: Fetch) -> str:
    path = f"{fetch.staging}/key"
    try:
        key = base64.b64decode(fetch.source.ssh_key, validate=True)
    except binascii.Error:
        raise Invalid("`sshkey` is not base64; write the private key with `base64 -w0 < key`") from None
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(key if key.endswith(b"\n") else key + b"\n")
    return path
