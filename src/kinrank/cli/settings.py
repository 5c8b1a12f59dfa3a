"""Settings of a ranker from text: ``name=value``, checked against the signature of its class."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from kinrank.errors import ParameterError

# What text can be read as, and what it is called. Anything else in a signature is for Python alone.
_KINDS: dict[Any, tuple[str, tuple[type, ...]]] = {
    NoneType: ("None", (NoneType,)),
    bool: ("bool", (bool,)),
    int: ("int", (int,)),
    float: ("float", (float, int)),
    str: ("str", (str,)),
    Sequence: ("list", (list, tuple)),
    Mapping: ("dict", (dict,)),
}


def parse_settings(cls: type[Any], settings: Iterable[str]) -> dict[str, Any]:
    """Keyword arguments of a class from ``name=value`` texts.

    A value is what Python would read (``200``, ``0.5``, ``True``, ``None``, ``['mean', 'max']``), else the text
    itself; the first of the two that the signature allows is taken.

    Examples
    --------
    >>> from kinrank import SingleRanker
    >>> parse_settings(SingleRanker, ["learner=rankrls", "missing=zero"])
    {'learner': 'rankrls', 'missing': 'zero'}
    >>> parse_settings(SingleRanker, ["missing=drop"])
    Traceback (most recent call last):
    ...
    kinrank.errors.ParameterError: missing must be 'error' | 'zero' | 'mean', got 'drop'. SingleRanker takes
      learner: str = 'ranksvm'
      scale: 'standard' | 'none' = 'standard'
      missing: 'error' | 'zero' | 'mean' = 'error'
    """
    kinds = _typed(cls)
    parsed = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise ParameterError(f"--set {setting}: write it as name=value. {cls.__name__} takes\n{listing(cls)}")
        if name not in kinds:
            raise ParameterError(f"unknown parameter {name!r}. {cls.__name__} takes\n{listing(cls)}")
        parsed[name] = _value(cls, name, text, kinds[name])
    return parsed


def free_settings(settings: Iterable[str]) -> dict[str, Any]:
    """Keyword arguments from ``name=value`` texts, for what has no signature to check: as Python reads it, else text.

    Examples
    --------
    >>> free_settings(["max_retries=2", "ca_certs=/etc/engine.pem"])
    {'max_retries': 2, 'ca_certs': '/etc/engine.pem'}
    """
    parsed = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise ParameterError(f"--set {setting}: write it as name=value")
        parsed[name] = next(iter(_readings(text, [])))
    return parsed


def listing(cls: type[Any]) -> str:
    """The parameters of a class that can be set by text, a line each."""
    parameters = inspect.signature(cls).parameters
    return "\n".join(f"  {name}: {_said(kinds)} = {parameters[name].default!r}" for name, kinds in _typed(cls).items())


def _typed(cls: type[Any]) -> dict[str, list[Any]]:
    """Each parameter that text can set, with the kinds of value it may have."""
    hints = get_type_hints(cls.__init__)
    kinds = {name: list(_kinds(hints[name])) for name in inspect.signature(cls).parameters}
    return {name: some for name, some in kinds.items() if some}


def _kinds(hint: Any) -> Iterable[Any]:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        for choice in get_args(hint):
            yield from _kinds(choice)
    elif origin is Literal or hint in _KINDS:
        yield hint
    elif origin in _KINDS:
        yield origin


def _value(cls: type[Any], name: str, text: str, kinds: list[Any]) -> Any:
    for value in _readings(text, kinds):
        if any(_fits(value, kind) for kind in kinds):
            return value
    raise ParameterError(f"{name} must be {_said(kinds)}, got {text!r}. {cls.__name__} takes\n{listing(cls)}")


def _readings(text: str, kinds: list[Any]) -> Iterable[Any]:
    try:
        yield ast.literal_eval(text)
    except (ValueError, SyntaxError):
        if float in kinds and text in ("inf", "-inf"):  # numbers that Python has no literal for
            yield float(text)
    yield text


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return any(type(value) is type(choice) and value == choice for choice in get_args(kind))
    return type(value) in _KINDS[kind][1]


def _said(kinds: list[Any]) -> str:
    """The kinds as one would write them in a signature."""
    words = [
        word
        for kind in kinds
        for word in (map(repr, get_args(kind)) if get_origin(kind) is Literal else [_KINDS[kind][0]])
    ]
    return " | ".join(words)
