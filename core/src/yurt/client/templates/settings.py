"""What an operator configures of templates, with Nomad's defaults: the `client.template` block."""

from __future__ import annotations

from yurt.sdk.value import Value

DENIED = ("plugin", "executeTemplate", "writeToFile")


class TemplateSettings(Value):
    """Times in seconds. `retry_attempts` 0 tries without end."""

    denied_functions: tuple[str, ...] = DENIED
    is_sandboxed: bool = True
    wait_min_s: float = 5.0
    wait_max_s: float = 240.0
    query_wait_s: float = 300.0
    retry_attempts: int = 12
    retry_first_s: float = 0.25
    retry_max_s: float = 60.0
