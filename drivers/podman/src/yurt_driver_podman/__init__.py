"""The podman task driver."""
