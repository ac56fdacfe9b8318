"""The transport between agents.

`contract` reads the calls of a port off its Protocol; `frames` is what travels; `peer` carries calls in both
directions over one connection, whatever that is; `proxy` makes a far port look like a near one. None of these knows
gRPC: `grpc_listener` and `link` are the adapters that do, imported only by agents that speak to others.

gRPC reads its settings from the environment when it is imported, which is after this. An agent forks only to begin
other programs, so gRPC has nothing to save over a fork; what its C library has to say is for its own developers.
"""

import os

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
