"""Pelops: declarative Redis Streams consumer groups on Kubernetes."""

__version__ = "0.1.0"
