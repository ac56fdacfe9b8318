"""Volumes of this node: what tasks mount, dynamic host volumes and their plugins."""
