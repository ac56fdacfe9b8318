"""The command line; speaks HTTP only, save for the agent command."""
