"""Records the requests and answers of concurrent clients, and checks them against a sequential model of each object.

`history` holds the records, `checker` decides linearizability, `counterexample` makes a violation readable, `indexes`
checks what must hold between objects. A module for each kind of object holds its model, its requests over HTTP and
the choice of the next one; `clients` sends them to agents.
"""
