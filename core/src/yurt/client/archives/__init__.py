"""Archives from strangers: read as a stream, and written beneath an open folder that nothing in them can leave."""
