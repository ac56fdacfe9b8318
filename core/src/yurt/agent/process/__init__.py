"""The agent as a process of its host: where its log goes, what systemd is told, what SIGHUP reads again."""
