"""What an allocation takes of a node and of limits beside the nodes, and what plans leave free."""
