"""The adapter to Kubernetes: the only package that imports `kubernetes`."""
