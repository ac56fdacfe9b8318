"""The management token of `yurt agent -dev -acl`.

A dev agent starts with an empty state, so it bootstraps access control itself. With a data directory it keeps the
secret there, and the next start uses it again: a token that a terminal has exported survives restarts of the agent.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from yurt.agent.data_dir import AgentDataDir
from yurt.runtime.env import Env
from yurt.sdk.errors import Invalid
from yurt.server.resources.acl_tokens import AclTokens
from yurt.structs.acl import SECRET

SECRET_FILE: Final = "dev-management-token"
"""Below the server's folder, readable by its owner only."""


class DevToken(NamedTuple):
    """The management token of a dev agent, which its first screen shows."""

    accessor_id: str
    secret_id: str
    kept_at: str
    """The file that keeps the secret for the next start; "" for none."""


async def bootstrap_dev(tokens: AclTokens, data: AgentDataDir, env: Env) -> DevToken:
    """Make the management token of a dev agent; raises Invalid when the file of its secret cannot be used."""
    path = None if data.is_temporary else data.server / SECRET_FILE
    stored = "" if path is None else await env.in_thread(_read, path)
    made = await tokens.bootstrap(stored)
    if path is not None and not stored:
        await env.in_thread(_write, path, made.secret)
    return DevToken(made.token.accessor_id, made.secret, "" if path is None else str(path))


def _read(path: Path) -> str:
    """The stored secret; "" before the first start."""
    try:
        text = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} cannot be read: {error}; remove it to get a new management token") from None
    if not SECRET.fullmatch(text):
        raise Invalid(f"{path} holds no Secret ID of a token; remove it to get a new management token")
    return text


def _write(path: Path, secret: str) -> None:
    draft = path.with_name(f"{path.name}.new")
    try:
        with suppress(FileNotFoundError):
            draft.unlink()
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
            file.write(f"{secret}\n")
        draft.replace(path)
    except OSError as error:
        raise Invalid(f"{path} cannot be written: {error.strerror}") from None
