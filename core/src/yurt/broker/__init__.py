"""The evaluation queue, blocked evaluations and their timers."""
