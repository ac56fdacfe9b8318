"""Rules about jobs, pure: defaults, bounds, validation, differences, launch times and ignored settings."""
