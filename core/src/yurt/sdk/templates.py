"""The contract of template providers: functions for task templates that query another product.

A template that calls `key "app/limit"` is rendered by a process without access to files and networks. The call becomes
a `TemplateAsk`, which the client passes to the provider of that function; the answer is stored and the template
rendered with it. So a call returns the provider's last answer, and a new answer renders the template again.

Any provider may offer the functions of Consul and Vault (`PRODUCT_FUNCTIONS`). Its other functions are named after it:
those of the provider `etcd` begin with `etcd_`. A function has one provider on a node.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Protocol, runtime_checkable

from yurt.sdk.value import Value

PRODUCT_FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    "Consul": (
        "key", "keyExists", "keyExistsGet", "keyOrDefault", "ls", "safeLs", "tree", "safeTree", "service", "services",
        "node", "nodes", "datacenters", "connect", "caRoots", "caLeaf", "partitions", "peerings", "exportedServices",
        "byMeta",
    ),
    "Vault": ("secret", "secrets", "pkiCert"),
}  # fmt: skip
"""Functions of consul-template that query another product, by the product's name."""
ANSWER_MAX_BYTES = 1024 * 1024
"""The most that one answer may take as msgpack."""
FUNCTION_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
RESERVED_NAMES = ("sprig",)


class TemplateAsk(Value):
    """A function call in a template: its text arguments, and the task that the template belongs to.

    The provider decides what that task may see: it asks with rights of its own, and any job may call its functions.
    """

    function: str
    arguments: tuple[str, ...] = ()
    alloc_id: str = ""
    task_name: str = ""
    job_id: str = ""
    group_name: str = ""
    namespace: str = "default"


class TemplateAnswer(Value):
    """The result of a call: None, a boolean, a number, a text, or lists and maps (with text keys) of these.

    A template calls `.Name` of a map for its entry. With `exists=False` the task waits for it, and says so.
    """

    exists: bool = True
    data: Any = None


@runtime_checkable
class TemplateProvider(Protocol):
    """Implements the template functions in `functions`; all calls run on the client's event loop and must not block."""

    name: str
    functions: tuple[str, ...]

    def watch(self, ask: TemplateAsk) -> AsyncGenerator[TemplateAnswer, None]:
        """The first answer, then one after each change; when the stream ends, the last one remains valid.

        Closed when nobody asks any more. Raises NotFound where there is nothing (yet), PermissionDenied or Invalid for
        what no repetition mends, which fails the task with that text, and Unavailable when a retry may help: then it is
        called again, ever more slowly, and the last answer stays until there is another.
        """
        ...

    async def close(self) -> None:
        """Free the provider's resources; the agent stops."""
        ...


def problem_of(provider: TemplateProvider) -> str:
    """The problem with a provider's function names; empty when there is none."""
    if provider.name in RESERVED_NAMES:
        return f'"{provider.name}" cannot be the name of a template provider: functions of that prefix are taken'
    if not provider.functions:
        return f'the template provider "{provider.name}" has no functions'
    predefined = {name for names in PRODUCT_FUNCTIONS.values() for name in names}
    for name in provider.functions:
        if name not in predefined and not (FUNCTION_NAME.fullmatch(name) and name.startswith(f"{provider.name}_")):
            return (
                f'the function "{name}" of the template provider "{provider.name}" is none of Consul or Vault, '
                f'so its name has to begin with "{provider.name}_" and be made of letters, digits and _'
            )
    return ""


def by_function(providers: Mapping[str, TemplateProvider]) -> dict[str, TemplateProvider]:
    """The provider of each function."""
    return {function: provider for provider in providers.values() for function in provider.functions}
