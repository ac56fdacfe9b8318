"""The networks of task groups: a network namespace for each allocation, and the CNI plugins that connect it."""
