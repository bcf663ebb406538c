"""The resource types: our four kinds (`v1alpha1`) and the few core kinds we touch (`core`)."""

from arc_controller.api.scheme import SCHEME

__all__ = ["SCHEME"]
