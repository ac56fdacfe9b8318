"""Files that describe jobs and other objects: reading, writing, and the places of findings in them."""
