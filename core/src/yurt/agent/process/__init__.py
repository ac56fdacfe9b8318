"""The agent as a process of its host: its log, messages to systemd, and reloading on SIGHUP."""
