"""Runner scale sets for Kubernetes: controllers, listener, and the library they are written with."""

__version__ = "0.14.0"
