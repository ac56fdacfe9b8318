"""Clusters without processes: models of clients and users, shared logs and connections under a test's control."""
