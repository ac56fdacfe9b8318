"""The terms of a node's score, one module each, listed in `registry`."""
