"""Class hierarchies are shallow: a reader follows calls, not ancestors."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import kinrank


def depth(cls: type) -> int:
    """Return the number of classes of ours in the longest line of ancestors, with the class itself."""
    return 1 + max(map(depth, cls.__bases__), default=0) if cls.__module__.startswith("kinrank") else 0


def test_no_class_has_more_than_two_of_ours_above_it() -> None:
    deep = set()
    for module in pkgutil.walk_packages(kinrank.__path__, "kinrank."):
        if module.name.endswith("__main__"):
            continue
        try:
            members = inspect.getmembers(importlib.import_module(module.name), inspect.isclass)
        except ImportError:  # of an extra
            continue
        for _, cls in members:
            if depth(cls) > 3:
                deep.add(f"{cls.__module__}.{cls.__qualname__}: {depth(cls)}")
    assert not deep, sorted(deep)
