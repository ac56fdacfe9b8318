"""The servers that make one cluster: who they are, how the first of them form it, and how others join and leave."""
