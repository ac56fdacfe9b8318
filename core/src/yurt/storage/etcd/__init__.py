"""The command log on etcd: for several servers, with etcd members of their own or an etcd that stands by itself.

`member` runs etcd as a child of the agent; `log` is the engine. Nothing here is imported by an agent that has no etcd.
"""
