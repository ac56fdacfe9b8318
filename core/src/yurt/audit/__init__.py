"""The audit log: one JSON line for each decision on a request, in files that the operator chooses.

`events` words a line, `filters` leaves lines out, `files` writes and rotates one file, `trail` delivers lines to all
sinks. A request is a line when it is complete; one that changes something, and a stream, has a line before it begins
too. Where delivery is enforced a request fails when its line cannot be written, before it changes anything.
"""
