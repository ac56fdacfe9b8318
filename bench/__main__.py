"""`python -m bench [NAME ...]` runs all or those named; `python -m bench NAME OPTIONS` gives one its options."""

from __future__ import annotations

import importlib
import sys

NAMES = (
    "jobspec",
    "scheduler",
    "server",
    "c1m",
    "agent",
    "acl",
    "instructions",
    "registrations",
    "clients",
    "leaks",
    "containers",
    "etcd",
    "pauses",
    "audit",
    "http",
    "structure",
    "help",
    "regions",
    "queue",
    "ui",
)


def main() -> None:
    """Run them one after another; words after the first that are no names belong to the one benchmark before them."""
    words = sys.argv[1:] or list(NAMES)
    expected = words if all(word in NAMES for word in words) else words[:1]
    if expected[0] not in NAMES:
        sys.exit(f"no benchmark {expected[0]}; there are: {', '.join(NAMES)}")
    options = words[len(expected) :]
    for name in expected:
        sys.argv = [f"bench {name}", *options]
        importlib.import_module(f"bench.{name}").main()


if __name__ == "__main__":
    main()
