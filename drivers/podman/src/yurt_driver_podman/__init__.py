"""The podman task driver of Yurt."""
