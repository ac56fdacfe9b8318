"""Which nodes a group may use at all: masks over the rows of the node columns, kept until a node changes."""
