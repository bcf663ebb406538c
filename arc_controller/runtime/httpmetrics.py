"""Metrics of requests to the API server, under the names that client-go gave them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class TransportMetrics:
    """Label values are passed in the order of the names below."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "rest_client_requests_total",
            "HTTP requests by status code, method and host.",
            ["code", "method", "host"],
            registry=registry,
        )
        self.retries = Counter(
            "rest_client_request_retries_total",
            "Requests that were sent again, by status code (or what broke), verb and host.",
            ["code", "verb", "host"],
            registry=registry,
        )
        self.duration = Histogram(
            "rest_client_request_duration_seconds",
            "How long requests took; of a watch, until it was accepted.",
            ["verb", "host"],
            registry=registry,
            buckets=BUCKETS,
        )
        self.limiter = Histogram(
            "rest_client_rate_limiter_duration_seconds",
            "How long requests waited for the client-side rate limit.",
            ["verb", "host"],
            registry=registry,
            buckets=BUCKETS,
        )
