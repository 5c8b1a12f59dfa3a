"""The notation ``name(key=value, ...)`` for rankers, learners and measures.

A value is a Python literal (``200``, ``0.5``, ``True``, ``['mean', 'max']``) or text, quoted or not:
``knn(prior=global)`` equals ``knn(prior='global')``.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from kinrank.errors import ParameterError

# The types that text can be read as, their names, and the types of value they accept.
_TYPES: dict[Any, tuple[str, tuple[type, ...]]] = {
    NoneType: ("None", (NoneType,)),
    bool: ("bool", (bool,)),
    int: ("int", (int,)),
    float: ("float", (float, int)),
    str: ("str", (str,)),
    Sequence: ("list", (list, tuple)),
    Mapping: ("dict", (dict,)),
    dict: ("dict", (dict,)),
}
_CALL = re.compile(r"\s*([\w-]+)\s*(?:\((.*)\)\s*)?", re.DOTALL)
_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[][(){},]""")


def call_name(text: str) -> str:
    """Return the name in ``name(key=value, ...)``.

    Examples
    --------
    >>> call_name("knn(prior=global)"), call_name("knn")
    ('knn', 'knn')
    """
    return text.partition("(")[0].strip()


def split_call(text: str, family: str) -> tuple[str, list[str]]:
    """Split ``name(key=value, ...)`` into the name and the settings, for `parse_settings`.

    Examples
    --------
    >>> split_call("knn(n_neighbors=400, describe=['mean', 'max'])", "ranker")
    ('knn', ['n_neighbors=400', "describe=['mean', 'max']"])
    """
    match = _CALL.fullmatch(text)
    if match is None:
        raise ParameterError(f"cannot read {family} {text!r}: write name or name(key=value, ...)")
    settings = list(_split(match[2] or "", f"{family} {text!r}"))
    names = [setting.partition("=")[0].strip() for setting in settings]
    for name in names:
        if names.count(name) > 1:
            raise ParameterError(f"cannot read {family} {text!r}: {name!r} is set twice")
    return match[1], settings


def parse_settings(cls: type[Any] | None, settings: Iterable[str]) -> dict[str, Any]:
    """Return the keyword arguments in ``name=value`` texts.

    A value is read as a Python literal or as text, whichever the signature of the class allows; of two settings of one
    name, the last counts. If a parameter takes a dataclass or a dict of its fields, each field is set by name.

    Parameters
    ----------
    cls
        The class whose signature the settings must fit; None accepts any.
    settings
        ``name=value`` texts.

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
      scale: 'standard' | 'none' | 'min_max' | 'l2' | 'z_score' = 'standard'
      missing: 'error' | 'zero' | 'mean' = 'mean'
    >>> from kinrank import KinRanker
    >>> parse_settings(KinRanker, ["seed=1", "n_cells=64", "scale=l2"])
    {'seed': 1, 'settings': {'n_cells': 64, 'scale': 'l2'}}
    >>> parse_settings(None, ["max_retries=2", "ca_certs=/etc/engine.pem"])
    {'max_retries': 2, 'ca_certs': '/etc/engine.pem'}
    """
    pairs = (_split_setting(setting) for setting in settings)
    if cls is None:
        return {name: next(_readings(text)) for name, text in pairs}
    parsed: dict[str, Any] = {}
    try:
        settable = _settable(cls)
        for name, text in pairs:
            value, holder = _read(name, text, settable), settable[name].holder
            (parsed if holder is None else parsed.setdefault(holder, {}))[name] = value
    except ParameterError as error:
        raise ParameterError(f"{error}. {cls.__name__} takes\n{list_settings(cls)}") from None
    return parsed


def list_settings(cls: type[Any]) -> str:
    """Return the parameters of a class that text can set, one per line."""
    lines = []
    for name, found in _settable(cls).items():
        value = "" if found.default is inspect.Parameter.empty else f" = {found.default!r}"
        lines.append(f"  {name}: {_type_names(found.types)}{value}")
    return "\n".join(lines)


def _split(body: str, what: str) -> Iterator[str]:
    """Yield the settings between commas that are not in quotes or brackets."""
    depth = start = 0
    for token in _TOKEN.finditer(body):
        depth += (token[0] in "([{") - (token[0] in ")]}")
        if depth < 0:
            break
        if token[0] == "," and depth == 0:
            yield _nonempty(body[start : token.start()], what)
            start = token.end()
    if depth:
        raise ParameterError(f"cannot read {what}: the brackets do not match")
    if body[start:].strip():
        yield _nonempty(body[start:], what)


def _nonempty(setting: str, what: str) -> str:
    name, _, value = (part.strip() for part in setting.partition("="))
    if not (name and value):
        raise ParameterError(f"cannot read {what}: write settings as name=value, got {setting.strip()!r}")
    return setting.strip()


def _split_setting(setting: str) -> tuple[str, str]:
    name, equals, value = setting.partition("=")
    if not equals:
        raise ParameterError(f"cannot read setting {setting!r}: write it as name=value")
    return name.strip(), value.strip()


class _Settable(NamedTuple):
    """What text can set: a parameter, or a field of the dataclass that a parameter takes."""

    types: list[Any]
    default: Any
    holder: str | None
    """The name of that parameter; None for a parameter itself."""


def _settable(cls: type[Any], holder: str | None = None) -> dict[str, _Settable]:
    """Return what text can set of a class; parameters that only Python can set are left out."""
    hints = get_type_hints(cls.__init__)
    settable: dict[str, _Settable] = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        choices = get_args(hints[name])
        objects = [choice for choice in choices if is_dataclass(choice) and isinstance(choice, type)]
        if objects and any(get_origin(choice) is Mapping for choice in choices):
            settable |= _settable(objects[0], name)
            continue
        types = list(_text_types(hints[name]))
        if types:
            settable[name] = _Settable(types, parameter.default, holder)
    return settable


def _text_types(hint: Any) -> Iterator[Any]:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        for choice in get_args(hint):
            yield from _text_types(choice)
    elif origin is Literal or hint in _TYPES:
        yield hint
    elif origin in _TYPES:
        yield origin


def _read(name: str, text: str, settable: Mapping[str, _Settable]) -> Any:
    if name not in settable:
        raise ParameterError(f"unknown parameter {name!r}")
    types = settable[name].types
    for value in _readings(text, accept_infinity=float in types):
        if any(_fits(value, kind) for kind in types):
            return value
    raise ParameterError(f"{name} must be {_type_names(types)}, got {text!r}")


def _readings(text: str, *, accept_infinity: bool = False) -> Iterator[Any]:
    """Yield the values that a text can mean: a Python literal first, then the text itself."""
    try:
        yield ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError):
        if accept_infinity and text in ("inf", "-inf"):  # Python has no literal for them
            yield float(text)
    yield text


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return any(type(value) is type(choice) and value == choice for choice in get_args(kind))
    return type(value) in _TYPES[kind][1]


def _type_names(types: list[Any]) -> str:
    """Return the types as they are written in a signature."""
    names = [
        name
        for kind in types
        for name in (map(repr, get_args(kind)) if get_origin(kind) is Literal else [_TYPES[kind][0]])
    ]
    return " | ".join(names)
