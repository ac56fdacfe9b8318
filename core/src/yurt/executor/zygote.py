"""The program that starts tasks: `python -I -S -E zygote.py REQUESTS REPLIES LIFE DEV FOLDER [CGROUP_PARENT ...]`.

It runs alone: the standard library's smallest modules, no thread, nothing of yurt but the files that it needs, so that
a fork costs a millisecond and less than half a megabyte. It forks one shim ahead of need (`forking`), which becomes
the parent of a task (`shim`). It ends when the agent does (the pipe of requests closes).

`LIFE` is a pipe whose other end only the agent holds. In a dev run zygote and shims all watch it: when the agent is
gone, by whatever cause, each shim kills its task and the zygote removes the cgroups of the run.

This file is compiled at each start, and what that takes would stay in the memory that shims share: it is short.
"""

from __future__ import annotations

import os
import sys


def stand_alone() -> None:
    """Make this folder's modules importable by name, without importing their packages."""
    for name in ("yurt", "yurt.executor"):
        package = type(sys)(name)
        package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
        sys.modules[name] = package


if __name__ == "__main__":
    stand_alone()

    from yurt.executor.forking import main

    main()
