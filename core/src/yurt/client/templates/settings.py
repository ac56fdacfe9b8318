"""The operator's settings of templates, with Nomad's defaults: the `client.template` block."""

from __future__ import annotations

from yurt.sdk.value import Value

DENIED = ("plugin", "executeTemplate", "writeToFile")


class TemplateSettings(Value):
    """Times in seconds. The bounds hold for the `wait` of jobs."""

    denied_functions: tuple[str, ...] = DENIED
    is_sandboxed: bool = True
    wait_min_s: float = 5.0
    wait_max_s: float = 240.0
    bound_min_s: float = 0.0
    bound_max_s: float = 86400.0
    query_wait_s: float = 300.0
    retry_first_s: float = 0.25
    retry_max_s: float = 60.0
    retry_attempts: int = 0
    """Failed questions to the servers after which a template fails; 0: it waits until one answers."""
