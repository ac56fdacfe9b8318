"""The agent's `tls` block: certificate, trusted authority, and reloading of renewed files.

Between agents both ends show a certificate, and its name is checked: a client only speaks to `server.<region>.nomad`,
a server takes `client.<region>.nomad` and other servers. That is Nomad's `verify_server_hostname = true`, always.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from yurt.sdk.errors import Invalid
from yurt.sdk.value import Value

if TYPE_CHECKING:
    from yurt.agent.config import AgentConfig
    from yurt.rpc.dialling import Security

log = logging.getLogger(__name__)

VERSIONS = {"tls12": ssl.TLSVersion.TLSv1_2, "tls13": ssl.TLSVersion.TLSv1_3}


class TlsSettings(Value):
    """The `tls` block."""

    http: bool = False
    rpc: bool = False
    verify_https_client: bool = False
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    min_version: str = "tls12"
    upgrade: bool = False
    """rpc_upgrade_mode: agents without TLS are accepted and dialled too, without a certificate."""

    @property
    def is_used(self) -> bool:
        """Whether any port uses TLS."""
        return self.http or self.rpc

    def needs_certificate(self, *, has_tls: bool) -> bool:
        """Whether a connecting agent identifies itself by a certificate."""
        return self.rpc and (has_tls or not self.upgrade)


def tls_settings(config: AgentConfig) -> TlsSettings:
    """The settings; raises Invalid with all problems when the files do not fit together."""
    settings = tls_block(config)
    problems = _problems(settings, _own_name(config)) if settings.is_used else []
    if problems:
        raise Invalid("\n".join(problems))
    return settings


def tls_block(config: AgentConfig) -> TlsSettings:
    """The settings as they are written."""
    block = config.raw.get("tls", {})
    same = ("http", "rpc", "verify_https_client", "ca_file", "cert_file", "key_file")
    return TlsSettings(
        min_version=block.get("tls_min_version") or "tls12",
        upgrade=bool(block.get("rpc_upgrade_mode")),
        **{name: block[name] for name in same if name in block},
    )


def _own_name(config: AgentConfig) -> str:
    """The name that clients expect in a server's certificate; "" for an agent that is never dialled."""
    from yurt.rpc.certificates import SERVER, role_name

    return role_name(SERVER, config.region) if config.is_server else ""


def _problems(settings: TlsSettings, own_name: str) -> list[str]:
    from yurt.rpc.certificates import CertificatePair, check_pair, facts_of

    missing = [name for name in ("ca_file", "cert_file", "key_file") if not getattr(settings, name)]
    if missing:
        return [f"tls needs {', '.join(missing)}; `yurt tls ca create` and `yurt tls cert create` make the files"]
    found = [f"tls.tls_min_version must be tls12 or tls13, not {settings.min_version!r}"]
    if settings.min_version in VERSIONS:
        found = []
    try:
        pair = CertificatePair(
            certificate=_read("cert_file", settings.cert_file), key=_read("key_file", settings.key_file)
        )
        check_pair(pair, _read("ca_file", settings.ca_file))
        names = facts_of(pair.certificate).names
        if settings.rpc and own_name and own_name not in names:
            found.append(
                f"tls: clients speak to {own_name} only, and cert_file names {', '.join(names) or 'nobody'}; "
                "make one with `yurt tls cert create -server`"
            )
    except Invalid as error:
        found.append(f"tls: {error}")
    return found


def _read(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise Invalid(f"{name} {path} cannot be read: {error.strerror}") from None


def http_context(settings: TlsSettings) -> ssl.SSLContext | None:
    """The TLS context of the HTTP server; None for plain text."""
    if not settings.http:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[settings.min_version]
    context.load_verify_locations(settings.ca_file)
    context.load_cert_chain(settings.cert_file, settings.key_file)
    context.verify_mode = ssl.CERT_REQUIRED if settings.verify_https_client else ssl.CERT_NONE
    return context


def own_http_context(settings: TlsSettings) -> ssl.SSLContext | None:
    """The TLS context for this agent's own HTTP address: checks the authority, but no name on the loopback."""
    if not settings.http:
        return None
    context = ssl.create_default_context(cafile=settings.ca_file)
    context.check_hostname = False
    context.load_cert_chain(settings.cert_file, settings.key_file)
    return context


def reload_http(context: ssl.SSLContext | None, settings: TlsSettings) -> None:
    """Take a renewed certificate for new connections."""
    if context is not None and settings.http:
        context.load_cert_chain(settings.cert_file, settings.key_file)
        context.load_verify_locations(settings.ca_file)


def log_certificate(settings: TlsSettings) -> None:
    """Log which certificate new connections show; raises Invalid for a file that has become unusable."""
    from yurt.rpc.certificates import facts_of

    if not settings.is_used:
        return
    facts = facts_of(_read("cert_file", settings.cert_file))
    ends = facts.ends.strftime("%Y-%m-%dT%H:%M:%SZ")
    log.info("tls files read again, new connections use them: certificate=%s ends=%s", facts.serial, ends)


def server_credentials(settings: TlsSettings) -> Callable[[], ssl.SSLContext] | None:
    """The credentials for accepting agents; renewed files apply from the next connection, invalid files are ignored."""
    if not settings.rpc:
        return None
    contexts = _Contexts(settings, ssl.PROTOCOL_TLS_SERVER)
    contexts.current()
    return contexts.current


def dialling(settings: TlsSettings, server_name: str) -> Security | None:
    """The TLS settings for dialling the server of that name; None without TLS."""
    from yurt.rpc.dialling import Security

    if not settings.rpc:
        return None
    return Security(lambda: channel_credentials(settings), server_name, allows_plain=settings.upgrade)


def channel_credentials(settings: TlsSettings) -> ssl.SSLContext:
    """The credentials for dialling a server; raises Invalid for an unusable file."""
    return _agent_context(settings, ssl.PROTOCOL_TLS_CLIENT)


class _Contexts:
    """The context of the current files, or of the last usable ones."""

    def __init__(self, settings: TlsSettings, side: int) -> None:
        self._settings = settings
        self._side = side
        self._stamp: tuple[tuple[int, int], ...] = ()
        self._context: ssl.SSLContext | None = None

    def current(self) -> ssl.SSLContext:
        """Raises Invalid when the files never could be used."""
        stamp = _stamp_of(self._settings)
        if self._context is None or stamp != self._stamp:
            self._stamp = stamp
            try:
                self._context = _agent_context(self._settings, self._side)
            except Invalid as error:
                if self._context is None:
                    raise
                log.error("the renewed files of tls are not used: %s", error)
        return self._context


def _stamp_of(settings: TlsSettings) -> tuple[tuple[int, int], ...]:
    """Changes when a file does."""
    found = []
    for path in (settings.ca_file, settings.cert_file, settings.key_file):
        try:
            facts = Path(path).stat()
            found.append((facts.st_mtime_ns, facts.st_size))
        except OSError:
            found.append((0, 0))
    return tuple(found)


def _agent_context(settings: TlsSettings, side: int) -> ssl.SSLContext:
    """Both ends show a certificate that the authority has signed."""
    from yurt.rpc.tls_alerts import AlertingContext

    context = AlertingContext(side) if side == ssl.PROTOCOL_TLS_SERVER else ssl.SSLContext(side)
    context.minimum_version = VERSIONS[settings.min_version]
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(settings.ca_file)
        context.load_cert_chain(settings.cert_file, settings.key_file)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise Invalid(f"tls: ca_file, cert_file and key_file cannot be used: {reason}") from None
    return context
