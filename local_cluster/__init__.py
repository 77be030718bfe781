"""A whole cluster on one Linux machine: control plane, nodes that run pods as processes, Redis."""
