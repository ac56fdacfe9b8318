"""Clusters without processes: models of clients and users, shared logs and connections that a test controls."""
