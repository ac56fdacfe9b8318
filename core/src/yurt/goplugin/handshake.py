"""The plugin handshake: environment variables from the host, one line of output from the plugin.

The host sets a cookie (so that a plugin run by hand can say what it is), the protocol versions it speaks and, when it
wants mutual TLS, its certificate. The plugin prints
`<core version>|<protocol version>|<network>|<address>|grpc[|<its certificate, DER in base64 without padding>]`.
"""

from __future__ import annotations

import base64
import binascii
import fnmatch
from collections.abc import Mapping

from yurt.sdk.errors import DriverError
from yurt.sdk.value import Value

COOKIE_NAME = "NOMAD_PLUGIN_MAGIC_COOKIE"
COOKIE = "e4327c2e01eabfd75a8a67adb114fb34a757d57eee7728d857a8cec6e91a7255"
CLIENT_CERT = "PLUGIN_CLIENT_CERT"
SOCKET_FOLDER = "PLUGIN_UNIX_SOCKET_DIR"
VERSIONS = "PLUGIN_PROTOCOL_VERSIONS"
INHERITED = (
    "ALL_PROXY", "DOCKER_*", "GODEBUG", "GOMAXPROCS", "GOTRACEBACK", "HOME", "HTTPS_PROXY", "HTTP_PROXY", "LANG",
    "LC_*", "LOGNAME", "NO_PROXY", "PATH", "SSL_CERT_DIR", "SSL_CERT_FILE", "TEMP", "TMP", "TMPDIR", "TZ", "USER",
    "XDG_*", "all_proxy", "http_proxy", "https_proxy", "no_proxy",
)  # fmt: skip
"""Variables of the agent that every plugin sees; others may hold secrets of the agent."""
CORE_VERSION = 1
PROTOCOL_VERSION = 2
LINE_BYTES_MAX = 16 * 1024


class HandshakeError(DriverError):
    """A program's first line is not a plugin handshake, or is one of an unsupported version."""


class Handshake(Value, rename=None):
    """The address on which a plugin listens: `network` is unix or tcp; `certificate` is DER, empty without TLS."""

    network: str
    address: str
    certificate: bytes = b""

    @property
    def target(self) -> str:
        """The address in gRPC's syntax."""
        return f"unix:{self.address}" if self.network == "unix" else self.address


def plugin_environment(
    *,
    socket_folder: str,
    ports: tuple[int, int],
    client_certificate: str = "",
    base: Mapping[str, str],
    allowed: tuple[str, ...] = (),
) -> dict[str, str]:
    """The environment of a plugin's process: the variables of `base` that every plugin sees or that match `allowed`."""
    patterns = (*INHERITED, *allowed)
    env = {name: base[name] for name in base if any(fnmatch.fnmatchcase(name, each) for each in patterns)}
    env.pop(CLIENT_CERT, None)
    env |= {
        COOKIE_NAME: COOKIE,
        VERSIONS: str(PROTOCOL_VERSION),
        "PLUGIN_MIN_PORT": str(ports[0]),
        "PLUGIN_MAX_PORT": str(ports[1]),
        SOCKET_FOLDER: socket_folder,
    }
    return env | ({CLIENT_CERT: client_certificate} if client_certificate else {})


def handshake_line(handshake: Handshake) -> str:
    """The line that a plugin prints."""
    parts = [str(CORE_VERSION), str(PROTOCOL_VERSION), handshake.network, handshake.address, "grpc"]
    if handshake.certificate:
        parts.append(base64.b64encode(handshake.certificate).decode().rstrip("="))
    return "|".join(parts)


def parse_handshake(line: str) -> Handshake:
    """Parse a plugin's first line; raises HandshakeError with the defect."""
    parts = line.strip().split("|")
    if len(parts) < 4:
        raise HandshakeError(
            f"it printed {shown(line)} instead of the handshake of a plugin; is this a program for Nomad's plugin_dir?"
        )
    core, version, network, address, *rest = parts
    if core != str(CORE_VERSION):
        raise HandshakeError(f"it speaks version {shown(core)} of the handshake; supported is version {CORE_VERSION}")
    if version != str(PROTOCOL_VERSION):
        raise HandshakeError(
            f"it speaks version {shown(version)} of Nomad's plugin protocol, Yurt speaks version {PROTOCOL_VERSION}; "
            "install a build of the plugin for Nomad 0.9 or newer"
        )
    kind = rest[0] if rest else ""
    if kind != "grpc":
        offered = f"offers the protocol {shown(kind)}" if kind else "names no protocol, which means netrpc"
        raise HandshakeError(f"the plugin {offered}; only grpc is supported")
    if network not in ("unix", "tcp") or not address:
        raise HandshakeError(f"it listens on {shown(f'{network} {address}')}; a unix socket or tcp was expected")
    return Handshake(network=network, address=address, certificate=certificate_of(rest[1] if len(rest) > 1 else ""))


def certificate_of(text: str) -> bytes:
    """The certificate in a handshake line."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        raise HandshakeError("the certificate in its handshake is damaged") from None


def shown(text: str) -> str:
    """Untrusted output, shortened and escaped for a message."""
    plain = "".join(each if each.isprintable() else "?" for each in text.strip())
    return f'"{plain[:80]}{"..." if len(plain) > 80 else ""}"'
