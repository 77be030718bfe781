"""The door to Kubernetes: the only package that imports `kubernetes`."""
