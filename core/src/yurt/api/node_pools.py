"""Node pools of requests and files, with their queue in any of the published spellings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yurt.api.decode import decode_value
from yurt.api.idle_block import space_problems, with_idle_block
from yurt.rules.batch_queue import batch_queue_problems, normalised
from yurt.rules.validation.job import NODE_POOL
from yurt.sdk.value import duration_text, parse_duration
from yurt.state.tables import BUILT_IN_POOLS
from yurt.structs.cluster import NodePool


def pool_name_problem(name: str) -> str:
    """Why no node pool of this name can be made or changed; empty for none."""
    if name in BUILT_IN_POOLS:
        return f'modifying node pool "{name}" is not allowed'
    return "" if NODE_POOL.match(name) else f'invalid name "{name[:64]}", must match regex ^[a-zA-Z0-9-_]{{1,128}}$'


def decode_node_pool(document: Mapping[str, Any]) -> tuple[NodePool, list[str]]:
    """The pool, and the problems of its queue and idle policy; raises Invalid for a document of another shape."""
    document = with_idle_block(document)
    key = next((key for key in document if key.replace("_", "").lower() == "batchqueue"), "")
    if key and document[key] is not None:
        rest = {name: value for name, value in document.items() if name != key}
        document = rest | {"BatchQueue": normalised(document[key], parse_duration)}
    pool, _ = decode_value(document, NodePool, name="NodePool")
    of_queue = [] if pool.batch_queue is None else list(batch_queue_problems(pool.batch_queue))
    return pool, [*_identity_problems(pool), *of_queue, *space_problems(pool.idle)]


def _identity_problems(pool: NodePool) -> list[str]:
    if pool.node_identity_ttl >= 0:
        return []
    ttl = duration_text(pool.node_identity_ttl)
    return [f"node identity TTL must be above 0, or 0 for the usual one (got {ttl})"]
