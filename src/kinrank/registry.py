"""One shape for every family of interchangeable parts: a name, a lazy class, an install hint.

Rankers, learners, indexes and engines are all looked up here. Adding one costs a file and a line; the check
suites, the command line and the reference pages walk the registries and find it by themselves.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from kinrank.errors import MissingExtraError, ParameterError


def import_extra(module: str, extra: str) -> ModuleType:
    """Import an optional dependency, or say which pip line installs it.

    Examples
    --------
    >>> import_extra("a_module_nobody_has", "lightgbm")
    Traceback (most recent call last):
    ...
    kinrank.errors.MissingExtraError: this needs a_module_nobody_has, ...: pip install 'kinrank[lightgbm]'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"this needs {module}, which is not installed: pip install 'kinrank[{extra}]'"
        ) from error


class Registry:
    """Names for the interchangeable parts of one family, imported when first asked for.

    Parameters
    ----------
    family
        What the members are, in the singular, for error messages: "learner".
    members
        Name to ``"module:Class"``.

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

    def __getitem__(self, name: str) -> type[Any]:
        try:
            module, _, attribute = self._members[name].partition(":")
        except KeyError:
            choices = ", ".join(repr(known) for known in self._members)
            raise ParameterError(f"unknown {self.family} {name!r}: choose one of {choices}") from None
        member: type[Any] = getattr(importlib.import_module(module), attribute)
        return member

    def make(self, spec: str) -> Any:
        """A member made from text: its name, with settings in brackets where the defaults do not serve.

        Examples
        --------
        >>> learners = Registry("learner", {"rankrls": "kinrank.learn.rankrls:RankRLS"})
        >>> learners.make("rankrls(penalty=0.1)")
        RankRLS(penalty=0.1)
        """
        name, bracket, rest = spec.partition("(")
        cls = self[name]
        try:
            call = ast.parse(f"f{bracket}{rest}" if bracket else "f()", mode="eval").body
            if not isinstance(call, ast.Call) or call.args:
                raise ValueError("not name=value settings in brackets")
            return cls(**{str(word.arg): ast.literal_eval(word.value) for word in call.keywords})
        except (SyntaxError, ValueError, TypeError) as error:
            raise ParameterError(
                f"cannot read {self.family} {spec!r} ({error}): write {name!r}, or settings as in '{name}(name=value)'"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def name_of(self, cls: type[Any]) -> str:
        """The name a class is registered under.

        Compared by module and name, so that looking one up imports nothing.
        """
        target = f"{cls.__module__}:{cls.__qualname__}"
        for name, member in self._members.items():
            if member == target:
                return name
        raise ParameterError(f"{cls.__qualname__} is not a registered {self.family}: it has no name to be saved under")
