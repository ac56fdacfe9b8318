"""Command lines that web pages and error hints suggest to users."""

from __future__ import annotations


def why_not_hint(namespace: str, job_id: str) -> str:
    """The command that explains a job with unplaced allocations."""
    space = "" if namespace == "default" else f"-namespace {namespace} "
    return f"`yurt job why-not {space}{job_id}` names the nearest nodes and the smallest change."
