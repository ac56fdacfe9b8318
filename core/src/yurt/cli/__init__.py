"""The command line. All commands but `agent` and the local tools use HTTP only."""
