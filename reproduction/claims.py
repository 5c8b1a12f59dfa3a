"""What the papers say, as data, and whether the figures measured here agree.

``expected/PAPER.toml`` holds the claims of a paper. A claim names a figure, the range in which the paper's statement
holds, and whether we expect it to: a statement known not to reproduce says why, and is as loud when it suddenly holds
as one that breaks.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from kinrank.errors import ParameterError
from reproduction import PAPERS


@dataclass(frozen=True)
class Claim:
    """A statement of a paper about one figure.

    Attributes
    ----------
    where : str
        The table, figure or section.
    says : str
        The statement.
    part : str
        The experiment that measures it.
    figure : tuple
        Where the number stands in the figures of the part: keys, and positions of lists.
    minus : tuple
        Where another number stands that is subtracted first; empty for none.
    low, high : float
        The statement holds from `low` to `high`.
    reproduces : bool
        Whether we expect it to hold.
    reason : str
        Why not, where not.
    here : float or None
        What was measured when the claim was written down.
    within : float
        How far from `here` a figure may be: further says that something has changed.
    """

    where: str
    says: str
    part: str
    figure: tuple[str | int, ...]
    minus: tuple[str | int, ...]
    low: float
    high: float
    reproduces: bool
    reason: str
    here: float | None
    within: float


@dataclass(frozen=True)
class Verdict:
    """A claim, judged.

    Attributes
    ----------
    claim : Claim
        The claim.
    value : float
        What was measured.
    """

    claim: Claim
    value: float

    @property
    def holds(self) -> bool:
        """Whether the paper's statement is true of the figure."""
        return self.claim.low <= self.value <= self.claim.high

    @property
    def steady(self) -> bool:
        """Whether the figure is what it was."""
        return self.claim.here is None or math.isclose(
            self.value, self.claim.here, rel_tol=0, abs_tol=self.claim.within
        )

    @property
    def as_expected(self) -> bool:
        """Whether nothing has changed: it holds or not as written down, and the figure is what it was."""
        return self.holds == self.claim.reproduces and self.steady

    def __str__(self) -> str:
        said = "reproduced" if self.holds else "not reproduced"
        if self.holds != self.claim.reproduces:
            return f"{said}, against expectation"
        return said if self.steady else f"{said}, but was {self.claim.here:g} ± {self.claim.within:g}"


@dataclass(frozen=True)
class LeftOut:
    """What of a paper is not measured, and why."""

    what: str
    why: str


@dataclass(frozen=True)
class Expectations:
    """All that is expected of one paper."""

    command: str
    claims: tuple[Claim, ...]
    left_out: tuple[LeftOut, ...]


def expectations(paper: str) -> Expectations:
    """Read what is expected of a paper.

    Examples
    --------
    >>> expectations("sser").command
    'python -m reproduction sser'
    """
    if paper not in PAPERS:
        raise ParameterError(f"unknown paper {paper!r}: choose one of {', '.join(map(repr, PAPERS))}")
    text = resources.files(__package__).joinpath("expected", f"{paper}.toml").read_text(encoding="utf-8")
    return read_expectations(text)


def read_expectations(text: str) -> Expectations:
    """Expectations from TOML; an entry that cannot be judged is refused."""
    read = tomllib.loads(text)
    return Expectations(
        command=read["command"],
        claims=tuple(_claim(entry) for entry in read["claim"]),
        left_out=tuple(LeftOut(**entry) for entry in read.get("left_out", [])),
    )


def judge(claims: Iterable[Claim], figures: Mapping[str, Any]) -> list[Verdict]:
    """Hold claims against the figures of their parts."""
    return [Verdict(claim, _number(claim, figures)) for claim in claims]


_KNOWN = {
    *("where", "says", "part", "figure", "minus", "reproduces", "reason", "here", "within"),
    *("expected", "tolerance", "at_least", "at_most"),
}


def _claim(entry: dict[str, Any]) -> Claim:
    what = f"claim {entry.get('where')!r}: {entry.get('says')!r}"
    if unknown := sorted(set(entry) - _KNOWN):
        raise ParameterError(f"{what} has unknown keys {', '.join(unknown)}")
    if "expected" in entry:
        low, high = entry["expected"] - entry["tolerance"], entry["expected"] + entry["tolerance"]
    else:
        low, high = entry.get("at_least", -math.inf), entry.get("at_most", math.inf)
    if math.isinf(low) and math.isinf(high):
        raise ParameterError(f"{what} is true of every number: give expected and tolerance, at_least or at_most")
    if not entry["reproduces"] and not entry.get("reason"):
        raise ParameterError(f"{what} is not expected to reproduce: give the reason")
    if ("here" in entry) != ("within" in entry):
        raise ParameterError(f"{what}: here and within go together")
    return Claim(
        where=entry["where"],
        says=entry["says"],
        part=entry["part"],
        figure=tuple(entry["figure"]),
        minus=tuple(entry.get("minus", ())),
        low=low,
        high=high,
        reproduces=entry["reproduces"],
        reason=entry.get("reason", ""),
        here=entry.get("here"),
        within=entry.get("within", math.inf),
    )


def _number(claim: Claim, figures: Mapping[str, Any]) -> float:
    value = _at(claim, claim.figure, figures)
    return value - _at(claim, claim.minus, figures) if claim.minus else value


def _at(claim: Claim, path: tuple[str | int, ...], figures: Mapping[str, Any]) -> float:
    found: Any = figures.get(claim.part)
    for step in path:
        try:
            found = found[step]
        except (KeyError, IndexError, TypeError):
            raise ParameterError(
                f"claim {claim.where!r}: {claim.says!r} names a figure that {claim.part} does not have: "
                f"{step!r} of {list(path)}"
            ) from None
    return float(found)
