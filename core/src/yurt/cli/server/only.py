"""What only an agent with a server carries out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from yurt.cli.command import Invocation
from yurt.cli.errors import ApiError, CliError

NOT_HERE: Final = 501
"""How an agent without a server answers, as Nomad's does."""


def of_server(call: Invocation, ask: Callable[[], Any]) -> Any:
    """The answer; raises CliError with what to do where the agent runs no server."""
    try:
        return ask()
    except ApiError as error:
        if error.status != NOT_HERE:
            raise
        address = call.api.connection.address
        raise CliError(
            f"The agent at {address} runs no server; name one that does with -address or NOMAD_ADDR."
        ) from None
