"""Read models: facts derived from several tables, as columns that clients filter and sort.

Pure: a snapshot goes in, values come out. `job_facts`, `alloc_facts` and `node_facts` compute the facts of one row,
`kinds` names its fields as the API does, `query` reads a request for a list, and `selection` filters, counts and sorts
rows, a slice at a time.
"""
