"""The contract of artifact getters: kinds of sources that a package adds to the `artifact` block.

A source such as `oras::registry.example.com/tool:1.0` names its getter before the two colons. A getter is declared as
data, because it does not run in the agent: every download runs in a process of its own, confined by Landlock and an
unprivileged user where the system has them, with bounds on memory, files and time. That process imports the module of
`function` before it is confined, then calls the function, which blocks until the artifact lies at `target`. Unpacking,
checksums of files, `mode`, owners and the move to the task's folder stay Yurt's.

Python modules that the function needs must be imported at the top of its module: a confined process may be unable to
read the folder of packages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from yurt.sdk.value import Value, no_entries

FILE_KIND: Final = "file"
TREE_KIND: Final = "tree"
ArtifactKind = Literal["file", "tree"]
OWN_GETTERS: Final = frozenset({"http", "https", "git", "file", "s3", "gcs", "hg"})
"""Names that no package can take: Yurt's own getters, and those of Nomad."""
GETTER_ATTRIBUTE: Final = "artifact.getter."
"""The attribute of a node with a package's getter: this prefix and its name, with the value "true"."""
_NAME: Final = re.compile(r"[a-z][a-z0-9]{0,31}")
_FUNCTION: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


class ArtifactGetter(Value):
    """A kind of source: its name, and the function `package.module:function` that downloads.

    `makes` says what the function puts at the target: one file, which may be an archive that Yurt unpacks, or a folder.
    `config` is passed to each call; it must be JSON.
    """

    name: str
    function: str
    makes: ArtifactKind = FILE_KIND
    config: Mapping[str, Any] = no_entries()


class ArtifactRequest(Value):
    """One download.

    `address` is the source without getter, folder inside and parameters; `parameters` are those that Yurt does not read
    itself, with the options of the job file. `target` does not exist yet. `bytes_max`, `files_max` and `time_limit_s`
    are the operator's; the process ends at the last one, and a larger file cannot be written.

    The function raises `yurt.sdk.errors.Invalid` when no retry can help, `RecoverableError` when one may.
    """

    address: str
    target: str
    parameters: Mapping[str, str] = no_entries()
    headers: Mapping[str, str] = no_entries()
    is_insecure: bool = False
    bytes_max: int = 0
    files_max: int = 0
    time_limit_s: float = 0.0
    config: Mapping[str, Any] = no_entries()


def problem_of(getter: ArtifactGetter) -> str:
    """The problem with a getter's declaration; "" when there is none."""
    if not _NAME.fullmatch(getter.name):
        return f'"{getter.name}" is not a valid name for an artifact getter; use lower-case letters and digits'
    if getter.name in OWN_GETTERS:
        return f"the artifact getter \"{getter.name}\" is Yurt's own or Nomad's; choose another name"
    if not _FUNCTION.fullmatch(getter.function):
        return f'the function "{getter.function}" of the artifact getter "{getter.name}" must be "package.module:name"'
    if getter.makes not in (FILE_KIND, TREE_KIND):
        return f'the artifact getter "{getter.name}" must make "{FILE_KIND}" or "{TREE_KIND}", not "{getter.makes}"'
    return ""
