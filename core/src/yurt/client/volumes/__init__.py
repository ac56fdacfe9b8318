"""Volumes of this node: the mounts of tasks, dynamic host volumes and their plugins."""
