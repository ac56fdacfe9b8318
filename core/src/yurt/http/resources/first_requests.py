"""Prepares what the first requests to a server need, in a thread and ahead of them.

A first registration and a first read import their handlers and describe the types of their bodies, which takes 30 to
60 ms of processor time each. In the event loop nobody would be answered meanwhile; in a thread the caller would still
wait for it.
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
"""Modules beside this one whose routes are asked first, beside those of `jobs`."""
SHOWN: Final = (Allocation, Evaluation, Job, JobSummary, Node)
"""What their routes answer with."""


def prepare_first_requests() -> None:
    """Import and describe it, together with what the first job needs to be placed."""
    import_first_job()
    for name in HANDLER_MODULES:
        import_module(f"yurt.http.resources.{name}")
    prepare_jobs()
    decode_value({"Job": {}}, JobRegisterBody, name="JobRegister")
    for kind in SHOWN:
        struct_converter(kind)
