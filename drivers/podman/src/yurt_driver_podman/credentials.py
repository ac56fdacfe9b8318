"""Registry credentials configured by the operator: a containers auth file, or a credential helper."""

from __future__ import annotations

import base64
import json
import subprocess
from typing import Any

from yurt.sdk.containers.options import AgentAuth
from yurt.sdk.errors import DriverError

DEFAULT_REGISTRY = "docker.io"
INDEX_NAMES = ("https://index.docker.io/v1/", "index.docker.io")
HELPER_S = 10.0


def registry_of(image: str) -> str:
    """The registry's host of an image."""
    first, slash, _ = image.partition("/")
    is_host = bool(slash) and ("." in first or ":" in first or first == "localhost")
    return first if is_host else DEFAULT_REGISTRY


def stored_auth(where: AgentAuth, registry: str) -> dict[str, str] | None:
    """In a thread: a registry's credentials; None without any."""
    return from_helper(where.helper, registry) if where.helper else from_file(where.config, registry)


def from_file(path: str, registry: str) -> dict[str, str] | None:
    """Credentials from an auth file, as `podman login` writes it."""
    try:
        with open(path, encoding="utf-8") as file:
            auths: dict[str, Any] = json.load(file).get("auths") or {}
    except OSError as error:
        raise DriverError(f'auth.config = "{path}" cannot be read: {error.strerror}; write it or unset it') from None
    except ValueError as error:
        raise DriverError(f'auth.config = "{path}" is not a valid auth file: {error}') from None
    names = (registry, f"https://{registry}", *(INDEX_NAMES if registry == DEFAULT_REGISTRY else ()))
    for name in names:
        entry = auths.get(name) or {}
        if entry.get("auth"):
            user, _, password = base64.b64decode(entry["auth"]).decode().partition(":")
            return {"username": user, "password": password}
        if entry.get("username"):
            return {"username": str(entry["username"]), "password": str(entry.get("password", ""))}
    return None


def from_helper(helper: str, registry: str) -> dict[str, str] | None:
    """Credentials from `docker-credential-<helper> get`."""
    program = helper if "/" in helper else f"docker-credential-{helper}"
    try:
        done = subprocess.run(
            [program, "get"], input=registry.encode(), capture_output=True, timeout=HELPER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DriverError(f'auth.helper "{helper}" failed: {error}') from None
    if done.returncode != 0:
        text = (done.stdout + done.stderr).decode(errors="replace").strip()
        if "not found" in text:
            return None
        raise DriverError(f'auth.helper "{helper}" failed: {text[:200]}')
    found = json.loads(done.stdout)
    return {"username": str(found.get("Username", "")), "password": str(found.get("Secret", ""))}
