"""`yurt operator client-state`: the task state on disk from which a stopped client recovers its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yurt.cli.declaration import CliCommand, Invocation
from yurt.cli.errors import CliError
from yurt.sdk.errors import YurtError

if TYPE_CHECKING:
    from pathlib import Path

    from yurt.storage.client_db import AllocRecord, ClientDatabase

CLIENT, DATABASE = "client", "client.db"


def print_client_state(call: Invocation) -> int:
    """The records as JSON."""
    import asyncio
    from pathlib import Path

    from yurt.api.encode import encode_json

    try:
        found = asyncio.run(_read(database_path(Path(call.args[0]))))
    except YurtError as error:
        raise CliError(str(error)) from None
    call.screen.line(encode_json(found, pretty=True).decode().rstrip("\n"))
    return 0


def database_path(data_dir: Path) -> Path:
    """The file of the records; the directory may also be the client's own folder (its `state_dir`)."""
    for folder in (data_dir / CLIENT, data_dir):
        if (folder / DATABASE).is_file():
            return folder / DATABASE
    raise CliError(f"{data_dir} holds no state of a client: {data_dir / CLIENT / DATABASE} does not exist")


async def _read(path: Path) -> dict[str, Any]:
    from yurt.storage.client_db import ClientDatabase

    database = ClientDatabase(path)
    try:
        return await _shown(database)
    finally:
        await database.close()


async def _shown(database: ClientDatabase) -> dict[str, Any]:
    """All records but the node's secret and its token."""
    identity, meta = await database.identity(), await database.node_meta()
    return {
        "NodeID": identity.node_id if identity is not None else "",
        "SeenIndex": await database.seen_index(),
        "DynamicMeta": dict(meta.values),
        "HostVolumes": _hidden(await database.host_volumes()),
        "CSIUses": _hidden(await database.csi_uses()),
        "Allocations": {record.id: _alloc(record) for record in await database.allocs()},
    }


def _alloc(record: AllocRecord) -> dict[str, Any]:
    """An allocation, its tasks, and why it cannot be read where it cannot."""
    from yurt.cli.commands.operator.rows import shown

    made: dict[str, Any] = shown(record)
    del made["ID"]
    return made


def _hidden(records: tuple[Any, ...]) -> list[dict[str, Any]]:
    from yurt.cli.commands.operator.rows import shown

    return [shown(record) for record in records]


COMMANDS = (
    CliCommand(
        "operator client-state",
        "Print as JSON what a stopped client keeps on disk about its tasks",
        print_client_state,
        (),
        (1, 1),
        "<data directory>",
        "one argument: <data directory>",
        details="""
The directory is the agent's `data_dir`, or the client's `state_dir`; the agent must not run meanwhile. For each
allocation it holds the record that the servers sent, the states of its tasks, and the handle by which each task's
driver finds it. An agent in dev mode keeps nothing. Secrets and tokens are not printed.
""",
        is_client=False,
    ),
)
