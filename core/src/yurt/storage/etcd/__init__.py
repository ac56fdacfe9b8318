"""The command log on etcd: for several servers, with managed etcd members or an external cluster.

`member` runs etcd as a child of the agent; `log` is the engine. Nothing here is imported by an agent that has no etcd.

gRPC reads its settings from the environment when it is imported, which is after this: an agent forks only to begin
other programs, so gRPC has nothing to save over a fork, and what its C library says is for its own developers.
"""

import os

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
