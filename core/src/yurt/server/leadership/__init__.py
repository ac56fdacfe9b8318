"""Who leads, what runs only while this server leads, and calls between servers."""
