"""The client: fingerprints, allocation and task runners, log files."""
