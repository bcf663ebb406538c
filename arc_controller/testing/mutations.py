"""Fails a test that changes a cached object instead of a `LazyCopy` of it.

In a ``conftest.py``::

    @pytest.fixture(autouse=True)
    def nobody_changes_cached_objects() -> Iterator[None]:
        with mutations_detected():
            yield
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from arc_controller.runtime.cache import Cache

_of_this_task: ContextVar[list[Cache] | None] = ContextVar("caches_of_this_task", default=None)


@contextmanager
def mutations_detected(*, by_this_task: bool = False) -> Iterator[list[Cache]]:
    """Every cache made inside detects mutations, and is checked at the end.

    ``by_this_task``: only those made by this task and the tasks it starts. So several tasks can
    each have a block of their own, within one around them all, and each hears of its own mistakes.

    Raises `CachedObjectMutated`, unless something else was raised. Yields the caches.
    """
    caches: list[Cache] = []
    if by_this_task:
        token = _of_this_task.set(caches)
        try:
            yield caches
        finally:
            _of_this_task.reset(token)
    else:
        before = Cache.on_new
        Cache.on_new = _watcher(caches)
        try:
            yield caches
        finally:
            Cache.on_new = before
    for cache in caches:
        cache.check_mutations()


def _watcher(caches: list[Cache]) -> Callable[[Cache], None]:
    def watch(cache: Cache) -> None:
        mine = _of_this_task.get()
        cache.detect_mutations = True
        (caches if mine is None else mine).append(cache)

    return watch
