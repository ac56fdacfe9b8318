"""Volumes: what groups request, host volumes that nodes create, volumes of CSI plugins."""
