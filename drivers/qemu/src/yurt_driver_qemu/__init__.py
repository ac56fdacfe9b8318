"""The qemu task driver."""
