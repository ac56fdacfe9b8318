"""The transport between agents.

`contract` reads the calls of a port off its Protocol; `frames` is what travels; `peer` carries calls in both
directions over one connection, whatever that is; `proxy` makes a far port look like a near one. None of these knows
gRPC: `grpc_listener` and `link` are the adapters that do, imported only by agents that speak to others.
"""
