"""Fetches a git repository by the git program; blocking, in the child process.

git and ssh act for the job, so they use nothing of the agent's user: no configuration, key, agent of keys, or saved
password. ssh takes the user's home from the system's table and not from HOME; what it reads there is therefore named
and switched off one by one. Only the key of the artifact (`sshkey`) is used.
"""

from __future__ import annotations

import base64
import binascii
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

from yurt.client.artifacts.fetch_request import Fetch
from yurt.sdk.errors import Invalid, RecoverableError

PROTOCOLS: Final = "http:https:ssh:git"
ERROR_CHARACTERS: Final = 400
SSH_OPTIONS: Final = (
    "BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "GlobalKnownHostsFile=/dev/null",
    "IdentitiesOnly=yes", "IdentityAgent=none", "PKCS11Provider=none", "GSSAPIAuthentication=no",
    "HostbasedAuthentication=no", "ControlPath=none", "PermitLocalCommand=no", "ForwardAgent=no",
)  # fmt: skip
SSH: Final = " ".join(("ssh -F /dev/null", *(f"-o {option}" for option in SSH_OPTIONS)))
NO_KEY: Final = "-o IdentityFile=none"
WITHHELD_PREFIXES: Final = ("GIT_", "HG", "SSH_", "XDG_", "GCM_", "DISPLAY", "PYTHON")
"""Prefixes of variables that would lead git, hg or ssh to files or agents of the agent's user."""
SECRETS_OF_OPERATOR: Final = (
    "AWS_", "GOOGLE_", "GCE_", "GCLOUD_", "CLOUDSDK_", "AZURE_", "ARM_", "ALICLOUD_", "VAULT_", "CONSUL_", "NOMAD_",
    "YURT_", "DOCKER_", "KUBE", "GITHUB_", "GITLAB_", "NETRC",
)  # fmt: skip
"""Prefixes of variables with credentials for other services, visible to downloads by http but not to programs."""
SECRET_WORDS: Final = ("TOKEN", "SECRET", "PASSW", "PASSPHRASE", "CREDENTIAL", "APIKEY", "_KEY", "_AUTH", "COOKIE")
SETTINGS: Final = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "credential.helper=",
    "core.askPass=",
    "advice.detachedHead=false",
)


def clone(fetch: Fetch, path: str) -> None:
    """Clone into a new folder, at the requested ref, with submodules."""
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
    limit_s = fetch.limits.git_timeout_s
    run_program(fetch, "git", (*settings, *words), environment=_environment(fetch), limit_s=limit_s, left_s=limit_s)


def run_program(
    fetch: Fetch, program: str, words: Sequence[str], *, environment: Mapping[str, str], limit_s: float, left_s: float
) -> str:
    """Run git or hg in the staging folder; returns what it printed.

    Raises RecoverableError when it fails, or is not done in `left_s` of the `limit_s` that the client's configuration
    allows for all programs of an artifact.
    """
    source = fetch.source
    try:
        done = subprocess.run(
            [program, *words],
            env=environment,
            cwd=fetch.staging,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=max(0.0, left_s),
            check=False,
        )
    except subprocess.TimeoutExpired:
        setting = f"client artifact.{program}_timeout"
        raise RecoverableError(f"{source.shown} was not cloned within {limit_s:g} s ({setting})") from None
    if done.returncode:
        message = done.stderr.decode(errors="replace").replace(source.url, source.shown).strip()
        raise RecoverableError(f"{program} could not fetch {source.shown}: {message[-ERROR_CHARACTERS:]}")
    return done.stdout.decode(errors="replace").strip()


def _environment(fetch: Fetch) -> dict[str, str]:
    """The environment of git: no host configuration, prompts or local paths; the key when one is given."""
    return {
        **filtered_environment(),
        "HOME": fetch.staging,
        "XDG_CONFIG_HOME": fetch.staging,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": PROTOCOLS,
        "GIT_SSH_COMMAND": ssh_command(fetch),
        "GIT_SSH_VARIANT": "ssh",
        "LC_ALL": "C",
    }


def filtered_environment() -> dict[str, str]:
    """This process's variables without secrets, and without those that lead to files or agents of the agent's user."""
    return {name: value for name, value in os.environ.items() if not _is_withheld(name.upper())}


def _is_withheld(name: str) -> bool:
    is_secret = name.startswith(SECRETS_OF_OPERATOR) or any(word in name for word in SECRET_WORDS)
    return is_secret or name.startswith(WITHHELD_PREFIXES)


def ssh_command(fetch: Fetch) -> str:
    """ssh with no key but the artifact's, which is written into the staging folder."""
    return f"{SSH} -i {shlex.quote(_write_key(fetch))}" if fetch.source.ssh_key else f"{SSH} {NO_KEY}"


def _write_key(fetch: Fetch) -> str:
    path = f"{fetch.staging}/key"
    try:
        key = base64.b64decode(fetch.source.ssh_key, validate=True)
    except binascii.Error:
        raise Invalid("`sshkey` is not base64; write the private key with `base64 -w0 < key`") from None
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(key if key.endswith(b"\n") else key + b"\n")
    return path
