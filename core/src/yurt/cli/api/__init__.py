"""Asking the HTTP API of an agent: the client, objects by the beginning of their id, pages, frames of files."""
