"""HCL2 job files to API-shaped jobs."""
