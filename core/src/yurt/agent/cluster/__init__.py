"""The cluster of servers: membership, bootstrap, joining and leaving."""
