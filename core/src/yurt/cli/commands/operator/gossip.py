"""`yurt operator gossip keyring`: there is no gossip key; the commands explain what protects servers instead."""

from __future__ import annotations

from yurt.cli.declaration import CliCommand, Invocation
from yurt.cli.errors import CliError

INSTEAD = """\
Yurt's servers have no gossip key: they encrypt and authenticate everything that they say to each other by mutual TLS.
Set it up with:

    yurt tls ca create
    yurt tls cert create -server -region global
    yurt tls cert create -client

and in the configuration of each agent:

    tls {
      http      = true
      rpc       = true
      ca_file   = "nomad-agent-ca.pem"
      cert_file = "global-server-nomad.pem"
      key_file  = "global-server-nomad-key.pem"
    }

A server whose certificate the authority has not signed for the role and region is refused. To replace a certificate,
write the new file over it and send the agent SIGHUP."""
NO_KEY = "There is no gossip key to {verb}."
DETAILS = "Nothing is changed. Mutual TLS protects the servers' traffic; the answer says how to set it up."


def print_alternative(call: Invocation) -> int:
    """Explain what protects servers; fails, because nothing was done."""
    raise CliError(f"{NO_KEY.format(verb=call.command.name.rpartition(' ')[2])}\n{INSTEAD}")


COMMANDS = (
    CliCommand(
        "operator gossip keyring generate",
        "Say what protects servers instead of a gossip key",
        print_alternative,
        details=DETAILS,
        is_client=False,
    ),
    CliCommand(
        "operator gossip keyring install",
        "Say what protects servers instead of a gossip key to install",
        print_alternative,
        (),
        (0, 1),
        "[<key>]",
        "at most one argument: <key>",
        details=DETAILS,
        is_client=False,
    ),
    CliCommand(
        "operator gossip keyring list",
        "Say what protects servers instead of listed gossip keys",
        print_alternative,
        details=DETAILS,
        is_client=False,
    ),
    CliCommand(
        "operator gossip keyring remove",
        "Say what protects servers instead of a gossip key to remove",
        print_alternative,
        (),
        (0, 1),
        "[<key>]",
        "at most one argument: <key>",
        details=DETAILS,
        is_client=False,
    ),
    CliCommand(
        "operator gossip keyring use",
        "Say what protects servers instead of a gossip key to use",
        print_alternative,
        (),
        (0, 1),
        "[<key>]",
        "at most one argument: <key>",
        details=DETAILS,
        is_client=False,
    ),
)
