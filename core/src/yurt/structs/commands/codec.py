"""All commands as one union, and their encoding in the log.

The decoders describe every command and all that one contains, which takes 20 ms; a server whose log is in memory
decodes none.
"""

from __future__ import annotations

from functools import cache
from typing import get_args

import msgspec

from yurt.structs.commands.acl import AclCommand
from yurt.structs.commands.allocs import AllocCommand
from yurt.structs.commands.cluster import ClusterCommand, KeepAlive
from yurt.structs.commands.deployments import DeploymentCommand
from yurt.structs.commands.evaluations import EvaluationCommand
from yurt.structs.commands.jobs import JobCommand
from yurt.structs.commands.nodes import NodeCommand
from yurt.structs.commands.restore import RestoreCommand
from yurt.structs.commands.services import ServiceCommand
from yurt.structs.commands.variables import VariableCommand
from yurt.structs.commands.volumes import CsiVolumeCommand, HostVolumeCommand
from yurt.structs.rules import RULES_VERSION

AnyCommand = (
    JobCommand
    | NodeCommand
    | EvaluationCommand
    | AllocCommand
    | ServiceCommand
    | VariableCommand
    | HostVolumeCommand
    | CsiVolumeCommand
    | DeploymentCommand
    | ClusterCommand
    | RestoreCommand
    | AclCommand
)

SKIPPABLE = "?"


class _Tagged(msgspec.Struct):
    """The tag of a command of any version."""

    tag: str = msgspec.field(name="$")


_KNOWN = frozenset(str(each.__struct_config__.tag) for each in get_args(AnyCommand))
_encoder = msgspec.msgpack.Encoder()
_parts = msgspec.msgpack.Decoder(tuple[msgspec.Raw, ...])
_tagged = msgspec.msgpack.Decoder(_Tagged)


@cache
def _one() -> msgspec.msgpack.Decoder[AnyCommand]:
    return msgspec.msgpack.Decoder(AnyCommand)


@cache
def _several() -> msgspec.msgpack.Decoder[tuple[AnyCommand, ...]]:
    return msgspec.msgpack.Decoder(tuple[AnyCommand, ...])


def encode_command(command: AnyCommand) -> bytes:
    """The command as one log record."""
    return _encoder.encode(command)


def decode_command(data: bytes) -> AnyCommand:
    """The inverse of `encode_command`; raises msgspec.DecodeError for a newer or damaged record.

    What a newer version wrote and this one may pass over is decoded as what changes nothing.
    """
    try:
        return _checked(_one().decode(data))
    except msgspec.ValidationError:
        tag = _tagged.decode(data).tag
        if tag in _KNOWN or not tag.endswith(SKIPPABLE):
            raise
    return KeepAlive()


def decode_commands(data: bytes) -> tuple[AnyCommand, ...]:
    """Commands that were encoded together; raises like `decode_command`."""
    try:
        commands = _several().decode(data)
    except msgspec.ValidationError:
        return tuple(decode_command(bytes(part)) for part in _parts.decode(data))
    for each in commands:
        _checked(each)
    return commands


def _checked(command: AnyCommand) -> AnyCommand:
    """The command; raises msgspec.ValidationError where newer rules apply, which would give another state."""
    if command.rules_version > RULES_VERSION:
        raise msgspec.ValidationError(f"it follows rules {command.rules_version}, this version applies {RULES_VERSION}")
    return command
