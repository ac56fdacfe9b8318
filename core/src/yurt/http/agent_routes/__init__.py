"""Routes that an agent answers about itself, its client and its tasks."""
