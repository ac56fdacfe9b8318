"""Prepares what the first requests to a server need, in a thread and ahead of them.

A first registration and a first read import their handlers and describe the types of their bodies: 30 to 60 ms of
processor time each. In the event loop that would delay all other requests; in a thread it would delay the first ones.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from yurt.api.decode import decode_value, prepare_jobs
from yurt.api.encode import struct_converter
from yurt.http.resources.jobs import JobRegisterBody
from yurt.server.first_job import import_first_job
from yurt.structs.alloc import Allocation
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.node import Node
from yurt.structs.summary import JobSummary

HANDLER_MODULES: Final = ("allocations", "evaluations", "job_by_id", "nodes")
"""Modules of this package that answer the first requests, in addition to `jobs`."""
SHOWN: Final = (Allocation, Evaluation, Job, JobSummary, Node)
"""The types of the rows in their answers."""


def prepare_first_requests() -> None:
    """Import the handlers, validation and the scheduler, and describe the types of requests and answers.

    The descriptions of types are dropped once used; the imports after them take the memory that this frees.
    """
    prepare_jobs()
    decode_value({"Job": {}}, JobRegisterBody, name="JobRegister")
    for kind in SHOWN:
        struct_converter(kind)
    import_first_job()
    for name in HANDLER_MODULES:
        import_module(f"yurt.http.resources.{name}")
