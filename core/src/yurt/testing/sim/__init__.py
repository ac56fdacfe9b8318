"""A whole cluster in one process: real servers and clients on virtual time, with simulated edges, from a seed.

Everything that makes two runs differ is replaced: the clock and the loop (`loop`), threads (`loop`), sockets
(`network`), etcd (`etcd`), the client's database file (`disk`), drivers (`driver`). The code in between is the agents'
own. A run is a function of its seed and its `Plan`: the same seed gives the same digest.
"""
