"""Nomad's plugin protocol: drivers and devices that are binaries, and our drivers offered to Nomad.

gRPC reads its settings from the environment when it is imported, which is after this: an agent forks only to begin
other programs, so gRPC has nothing to save over a fork, and what its C library says is for its own developers.
"""

import os

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
