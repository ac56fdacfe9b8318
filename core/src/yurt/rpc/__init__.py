"""The transport between agents.

`contract` reads the calls of a port off its Protocol; `frames` is what travels; `peer` carries calls in both
directions over one connection, whatever that is; `proxy` makes a far port look like a near one. `wire` is that
connection: messages over TCP or TLS. `listener` takes connections in, within `limits`; `link` makes one to a server and
finds another one when it ends.
"""
