"""Runner scale sets for Kubernetes: the controllers, the listener and the library beneath."""

__version__ = "0.14.0"
