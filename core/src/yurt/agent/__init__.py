"""The composition root: configuration, logging, server and client joined."""
