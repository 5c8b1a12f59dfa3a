from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

import pytest

from kinrank import KinSettings
from kinrank.errors import ParameterError
from kinrank.rankers import RANKERS
from kinrank.registry.notation import list_settings, parse_settings


class Part:
    """A type that text cannot express."""


class Settable:
    def __init__(
        self,
        count: int = 1,
        *,
        share: float = 0.5,
        exact: bool = True,
        name: str = "a",
        mode: Literal["slow", "quick"] = "slow",
        norm: Literal[1, 2] = 2,
        radius: float | None = None,
        column: str | int | None = None,
        penalty: float | Literal["cv"] = 1.0,
        blocks: str | Sequence[str] | Mapping[str, float] = "mean",
        part: str | Part = "p",
        only_python: Part | None = None,
        never: Part = None,
    ) -> None: ...


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("count=200", 200),
        ("share=0.25", 0.25),
        ("share=1", 1),
        ("share=1e-3", 0.001),
        ("share=inf", math.inf),
        ("exact=False", False),
        ("name=rankrls", "rankrls"),
        ("name=7", "7"),
        ("name=a=b", "a=b"),
        ("name=", ""),
        ("mode=quick", "quick"),
        ("norm=1", 1),
        ("radius=None", None),
        ("radius=2.5", 2.5),
        ("column=3", 3),
        ("column='3'", "3"),
        ("column=bm25", "bm25"),
        ("penalty=cv", "cv"),
        ("penalty=3", 3),
        ("blocks=mean+max", "mean+max"),
        ("blocks=['mean', 'max']", ["mean", "max"]),
        ("blocks={'mean': 2.0}", {"mean": 2.0}),
        ("part=rankrls", "rankrls"),
    ],
)
def test_value_is_read_by_the_type_of_its_parameter(setting: str, value: Any):
    (read,) = parse_settings(Settable, [setting]).values()
    assert (type(read), read) == (type(value), value)


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("count=many", "count must be int, got 'many'"),
        ("count=2.5", "count must be int, got '2.5'"),
        ("count=True", "count must be int, got 'True'"),
        ("share=half", "share must be float, got 'half'"),
        ("exact=1", "exact must be bool, got '1'"),
        ("mode=fast", "mode must be 'slow' | 'quick', got 'fast'"),
        ("norm=True", "norm must be 1 | 2, got 'True'"),
        ("radius=wide", "radius must be float | None, got 'wide'"),
        ("only_python=x", "only_python must be None, got 'x'"),
        ("never=x", "unknown parameter 'never'"),
        ("k=3", "unknown parameter 'k'"),
        ("count", "write it as name=value"),
    ],
)
def test_invalid_setting_raises_with_the_parameters(setting: str, problem: str):
    with pytest.raises(ParameterError, match="Settable takes\n  count: int = 1\n") as error:
        parse_settings(Settable, [setting])
    assert problem in str(error.value)


def test_last_setting_of_a_name_counts():
    assert parse_settings(Settable, ["count=1", "count=2"]) == {"count": 2}


@pytest.mark.parametrize("name", list(RANKERS))
def test_every_ranker_parameter_can_be_set_from_text(name: str):
    cls = RANKERS[name]
    settings = {}
    for line in list_settings(cls).splitlines():
        parameter, _, default = line.strip().partition(": ")
        settings[parameter] = default.rpartition(" = ")[2]
    # Parameters, and in `settings` what few users change.
    parsed = parse_settings(cls, [f"{key}={text}" for key, text in settings.items()])
    flat = parsed.pop("settings", {}) | parsed
    defaults = {**asdict(KinSettings()), **cls().get_params(deep=False)}
    assert flat == {key: defaults[key] for key in settings}
