"""`python -m bench [name ...]`: all benchmarks, or those named."""

from __future__ import annotations

import importlib
import sys

NAMES = ("jobspec", "scheduler", "server", "c1m", "agent", "clients", "leaks", "containers", "etcd")


def main() -> None:
    """Run them one after another."""
    wanted = sys.argv[1:] or list(NAMES)
    unknown = [name for name in wanted if name not in NAMES]
    if unknown:
        sys.exit(f"no benchmark {', '.join(unknown)}; there are: {', '.join(NAMES)}")
    for name in wanted:
        importlib.import_module(f"bench.{name}").main()


if __name__ == "__main__":
    main()
