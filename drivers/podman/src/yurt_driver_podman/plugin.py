"""The entry point of podman."""
