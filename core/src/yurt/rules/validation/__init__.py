"""Validation of jobs: every problem of a job, in Nomad's words."""
