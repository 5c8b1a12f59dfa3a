"""Registries: one name per ranker, learner, index, engine or measure, imported on first use.

Adding a member costs one file and one line; the check suites, the command line and the reference pages iterate over
the registries.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Collection, Iterator
from types import ModuleType
from typing import Any

from kinrank.errors import MissingExtraError, ParameterError
from kinrank.registry.notation import parse_settings, split_call


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra. It is for a checkout, because kinrank is not on PyPI yet.

    Examples
    --------
    >>> how_to_install("lightgbm")
    "pip install '.[lightgbm]'"
    """
    return f"pip install '.[{extra}]'"


def import_extra(module: str, extra: str) -> ModuleType:
    """Import an optional dependency, or raise an error with the pip command that installs it.

    Examples
    --------
    >>> import_extra("a_module_nobody_has", "lightgbm")
    Traceback (most recent call last):
    ...
    kinrank.errors.MissingExtraError: a_module_nobody_has is not installed: pip install '.[lightgbm]' in a checkout
    """
    # Several of them bring OpenMP, whose threads by default spin while they wait for each other. If other processes use
    # the cores, they spin for most of their time. OpenMP reads this when it is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(f"{module} is not installed: {how_to_install(extra)} in a checkout") from error


def check_choice(name: str, value: object, choices: Collection[object]) -> None:
    """Raise ParameterError if a setting is not one of its choices."""
    if value not in choices:
        raise ParameterError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


class Registry:
    """Names of the interchangeable classes (or values) of one family, imported on first use.

    Parameters
    ----------
    family
        The singular name of the family, for error messages: "learner".
    members
        ``"module:attribute"`` by name.

    Examples
    --------
    >>> learners = Registry("learner", {"ranksvm": "kinrank.learn.ranksvm:RankSVM"})
    >>> learners["ranksvm"].__name__
    'RankSVM'
    >>> learners["svmrank"]
    Traceback (most recent call last):
    ...
    kinrank.errors.ParameterError: unknown learner 'svmrank': choose one of 'ranksvm'
    """

    def __init__(self, family: str, members: dict[str, str]) -> None:
        self.family = family
        self._members = members

    def __getitem__(self, name: str) -> Any:
        try:
            module, _, attribute = self._members[name].partition(":")
        except KeyError:
            choices = ", ".join(repr(known) for known in self._members)
            raise ParameterError(f"unknown {self.family} {name!r}: choose one of {choices}") from None
        return getattr(importlib.import_module(module), attribute)

    def make(self, spec: str) -> Any:
        """Return a new instance from ``name`` or ``name(key=value, ...)``.

        Examples
        --------
        >>> learners = Registry("learner", {"rankrls": "kinrank.learn.rankrls:RankRLS"})
        >>> learners.make("rankrls(penalty=0.1, balance=queries)")
        RankRLS(balance='queries', penalty=0.1)
        """
        name, settings = split_call(spec, self.family)
        cls = self[name]
        try:
            return cls(**parse_settings(cls, settings))
        except (ParameterError, TypeError) as error:
            raise ParameterError(f"cannot read {self.family} {spec!r}: {error}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    @property
    def targets(self) -> list[str]:
        """Where each member is, as ``"module:Class"``."""
        return list(self._members.values())

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def name_of(self, cls: type[Any]) -> str:
        """Return the name of a registered class, without importing any member."""
        target = f"{cls.__module__}:{cls.__qualname__}"
        for name, member in self._members.items():
            if member == target:
                return name
        raise ParameterError(f"{cls.__qualname__} is not a registered {self.family}, so it has no name to save")
