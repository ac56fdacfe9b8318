"""Node pools of requests and files, with their queue in any of the published spellings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yurt.api.decode import decode_value
from yurt.api.times import parse_duration
from yurt.rules.batch_queue import batch_queue_problems, normalised
from yurt.structs.cluster import NodePool


def decode_node_pool(document: Mapping[str, Any]) -> tuple[NodePool, list[str]]:
    """The pool, and the problems of its queue; raises Invalid for a document of another shape."""
    key = next((key for key in document if key.replace("_", "").lower() == "batchqueue"), "")
    if key and document[key] is not None:
        rest = {name: value for name, value in document.items() if name != key}
        document = rest | {"BatchQueue": normalised(document[key], parse_duration)}
    pool, _ = decode_value(document, NodePool, name="NodePool")
    return pool, [] if pool.batch_queue is None else list(batch_queue_problems(pool.batch_queue))
