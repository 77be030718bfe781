"""The adapter to Redis of the operator and the pipeline: one function per script or command."""
