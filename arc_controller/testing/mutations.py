"""Fails a test that changes a cached object instead of a `LazyCopy` of it.

In a ``conftest.py``::

    @pytest.fixture(autouse=True)
    def nobody_changes_cached_objects() -> Iterator[None]:
        with mutations_detected():
            yield
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from arc_controller.runtime.cache import Cache


@contextmanager
def mutations_detected() -> Iterator[list[Cache]]:
    """Every cache made inside detects mutations, and is checked at the end.

    Raises `CachedObjectMutated`, unless something else was raised. Yields the caches.
    """
    caches: list[Cache] = []

    def watch(cache: Cache) -> None:
        cache.detect_mutations = True
        caches.append(cache)

    before = Cache.on_new
    Cache.on_new = watch
    try:
        yield caches
    finally:
        Cache.on_new = before
    for cache in caches:
        cache.check_mutations()
