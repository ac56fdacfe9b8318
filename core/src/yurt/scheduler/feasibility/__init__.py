"""The nodes that a group may use: masks over the rows of the node columns, cached until a node changes."""
