"""The address of a container engine, and the TLS files to reach it."""

from __future__ import annotations

import grp
import os
import pwd
import ssl

import aiohttp
import msgspec

from yurt.sdk.errors import Invalid


class Tls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """TLS files for an engine that is reached by TCP."""

    cert: str = ""
    key: str = ""
    ca: str = ""


class EngineAddress:
    """The address of an engine: a Unix socket, or TCP with or without TLS."""

    def __init__(self, endpoint: str, tls: Tls | None = None) -> None:
        scheme, separator, rest = endpoint.partition("://")
        if not separator or scheme not in ("unix", "tcp", "http", "https") or not rest:
            raise Invalid(f'endpoint = "{endpoint}" must be unix:///path/to/engine.sock or tcp://host:port')
        self.endpoint = endpoint
        self.tls = tls or Tls()
        self.socket_path = "/" + rest.lstrip("/") if scheme == "unix" else ""
        is_secure = scheme == "https" or bool(self.tls.cert or self.tls.ca)
        self.base_url = "http://engine" if self.socket_path else f"{'https' if is_secure else 'http'}://{rest}"
        self.is_secure = is_secure and not self.socket_path

    def is_absent(self) -> bool:
        """Whether the engine certainly does not run: its socket does not exist."""
        return bool(self.socket_path) and not os.path.exists(self.socket_path)

    def absence_text(self, name: str) -> str:
        """Why an engine whose socket does not exist cannot be reached."""
        return f"there is no {name} engine: {self.socket_path} does not exist"

    def group_fix(self) -> str:
        """The hint how this user gets access to the socket by its group; empty when it has access."""
        if self.is_absent() or not self.socket_path or os.access(self.socket_path, os.R_OK | os.W_OK):
            return ""
        number = os.stat(self.socket_path).st_gid
        try:
            group = grp.getgrgid(number).gr_name
        except KeyError:
            group = str(number)
        try:
            user = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            user = str(os.getuid())
        return (
            f'add the agent\'s user to the group "{group}", which owns {self.socket_path}: '
            f"sudo usermod -aG {group} {user}; then log in again and restart the agent"
        )

    def connector(self) -> aiohttp.BaseConnector:
        """An HTTP connector with no limit on connections: each container may hold one."""
        if self.socket_path:
            return aiohttp.UnixConnector(path=self.socket_path, limit=0)
        context = self.tls_context()
        return aiohttp.TCPConnector(limit=0, ssl=context) if context else aiohttp.TCPConnector(limit=0)

    def tls_context(self) -> ssl.SSLContext | None:
        """The TLS context for the engine; None for plain text."""
        if not self.is_secure:
            return None
        context = ssl.create_default_context(cafile=self.tls.ca or None)
        if self.tls.cert:
            context.load_cert_chain(self.tls.cert, self.tls.key or None)
        return context
