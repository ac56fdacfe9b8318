"""Operations and duties of each resource: jobs, deployments, nodes, volumes, variables, services."""
