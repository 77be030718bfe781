"""The workers of groups as a replica knows them: their workloads, pods, nodes and budgets."""
