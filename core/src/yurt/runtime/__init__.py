"""Clock, ids, randomness and supervised tasks for the shells."""
