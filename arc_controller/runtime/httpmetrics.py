"""Metrics of requests to the API server, under the names that client-go gave them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class TransportMetrics:
    """Of the requests to one host."""

    def __init__(self, registry: CollectorRegistry, host: str) -> None:
        self._host = host
        self._requests = Counter(
            "rest_client_requests_total",
            "HTTP requests by status code, method and host.",
            ["code", "method", "host"],
            registry=registry,
        )
        self._retries = Counter(
            "rest_client_request_retries_total",
            "Requests that were sent again, by status code (or what broke), verb and host.",
            ["code", "verb", "host"],
            registry=registry,
        )
        self._duration = Histogram(
            "rest_client_request_duration_seconds",
            "How long requests took; of a watch, until it was accepted.",
            ["verb", "host"],
            registry=registry,
            buckets=BUCKETS,
        )
        self._limiter = Histogram(
            "rest_client_rate_limiter_duration_seconds",
            "How long requests waited for the client-side rate limit.",
            ["verb", "host"],
            registry=registry,
            buckets=BUCKETS,
        )
        # Looking a child up by its labels costs more than what is done with it.
        self._limiters: dict[str, Histogram] = {}
        self._answers: dict[tuple[str, str], tuple[Counter, Histogram]] = {}

    def waited(self, verb: str, seconds: float) -> None:
        """For the client-side rate limit."""
        child = self._limiters.get(verb)
        if child is None:
            child = self._limiters[verb] = self._limiter.labels(verb, self._host)
        child.observe(seconds)

    def answered(self, verb: str, code: str, seconds: float) -> None:
        """``WATCH`` is a verb; its method is GET."""
        key = (verb, code)
        children = self._answers.get(key)
        if children is None:
            method = "GET" if verb == "WATCH" else verb
            children = self._answers[key] = (
                self._requests.labels(code, method, self._host),
                self._duration.labels(verb, self._host),
            )
        children[0].inc()
        children[1].observe(seconds)

    def repeated(self, verb: str, code: str) -> None:
        self._retries.labels(code, verb, self._host).inc()
