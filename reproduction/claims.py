"""The claims of the papers as data, and verdicts on them.

``expected/PAPER.toml`` lists the claims of a paper: which figure, the range in which the claim holds, and whether we
expect it to. A claim that is known not to reproduce gives the reason. It is reported if it suddenly holds, just like a
claim that stops holding.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from kinrank.errors import ParameterError
from reproduction import PAPERS


@dataclass(frozen=True)
class Claim:
    """A claim of a paper about one figure.

    Attributes
    ----------
    source : str
        The table, figure or section of the paper.
    kind : {"thesis", "detail", "setup"}
        Whether it is what the paper is about, one of its details, or a check that our setup is sound.
    data : {"real", "generated"}
        Whether it is measured on real collections or in a generated world, which may be built to have the effect.
    statement : str
        What the paper claims.
    experiment : str
        The experiment that measures it.
    figure : tuple
        Path of the number in the figures of the experiment: keys and list positions.
    minus : tuple
        Path of a number to subtract; empty for none.
    low, high : float
        The claim holds if the number is from `low` to `high`.
    reproduces : bool
        Whether we expect it to hold.
    reason : str
        Why it does not hold; empty if it does.
    recorded : float or None
        The number measured when the claim was written down.
    max_drift : float
        Largest accepted difference from `recorded`.
    before, mended : str
        The verdict before the comparison was changed, and what was changed; empty if it never was.
    published : str
        The paper's own number or finding, to show next to ours; empty if it is not shown there.
    """

    source: str
    kind: str
    data: str
    statement: str
    experiment: str
    figure: tuple[str | int, ...]
    minus: tuple[str | int, ...]
    low: float
    high: float
    reproduces: bool
    reason: str
    recorded: float | None
    max_drift: float
    before: str
    mended: str
    published: str


@dataclass(frozen=True)
class Verdict:
    """A claim and the number measured for it.

    Attributes
    ----------
    claim : Claim
        The claim.
    value : float
        The number measured.
    """

    claim: Claim
    value: float

    @property
    def holds(self) -> bool:
        """Whether the claim holds."""
        return self.claim.low <= self.value <= self.claim.high

    @property
    def unchanged(self) -> bool:
        """Whether the number is within `max_drift` of the recorded one."""
        return self.claim.recorded is None or math.isclose(
            self.value, self.claim.recorded, rel_tol=0, abs_tol=self.claim.max_drift
        )

    @property
    def as_expected(self) -> bool:
        """Whether the claim holds, or does not, as expected, and the number is unchanged."""
        return self.holds == self.claim.reproduces and self.unchanged

    def __str__(self) -> str:
        verdict = "reproduced" if self.holds else "not reproduced"
        if self.holds != self.claim.reproduces:
            return f"{verdict}, against expectation"
        return verdict if self.unchanged else f"{verdict}, but was {self.claim.recorded:g} ± {self.claim.max_drift:g}"


@dataclass(frozen=True)
class Omission:
    """Something in a paper that is not measured, and the reason."""

    what: str
    reason: str


@dataclass(frozen=True)
class Expectations:
    """The claims of one paper, and what is not measured.

    Attributes
    ----------
    command : str
        Measures them.
    thesis : str
        What the paper is about, in one sentence.
    why : str
        Why the thesis holds or does not, in one sentence.
    undecided : tuple of str
        The kinds of data on which the measurements do not decide the thesis: the verdict there is "undecided", with the
        number of claims that hold.
    claims : tuple of Claim
        The claims.
    omitted : tuple of Omission
        What is not measured.
    """

    command: str
    thesis: str
    why: str
    undecided: tuple[str, ...]
    claims: tuple[Claim, ...]
    omitted: tuple[Omission, ...]


@cache
def expectations(paper: str) -> Expectations:
    """Read the claims of a paper.

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
    """Read claims from TOML.

    Raises
    ------
    ParameterError
        If an entry is incomplete or has unknown keys.
    """
    read = tomllib.loads(text)
    return Expectations(
        command=read["command"],
        thesis=read["thesis"],
        why=read["why"],
        undecided=tuple(read.get("undecided", ())),
        claims=tuple(_claim(entry) for entry in read["claim"]),
        omitted=tuple(Omission(**entry) for entry in read.get("omitted", [])),
    )


def judge(claims: Iterable[Claim], figures: Mapping[str, Any]) -> list[Verdict]:
    """Compare claims with the figures of their experiments."""
    return [Verdict(claim, _number(claim, figures)) for claim in claims]


def verdict_on(paper: str, claims: Iterable[Claim], figures: Mapping[str, Any]) -> str:
    """Return one verdict on some claims of a paper, with counts, or "not measured".

    It is "undecided" if a thesis does not hold on data on which the measurements do not decide it.

    Examples
    --------
    >>> verdict_on("sser", expectations("sser").claims, {})
    'not measured'
    """
    verdicts = judge((claim for claim in claims if claim.experiment in figures), figures)
    if not verdicts:
        return "not measured"
    open_data = expectations(paper).undecided
    holding = sum(each.holds for each in verdicts)
    if any(not each.holds and each.claim.kind == "thesis" and each.claim.data in open_data for each in verdicts):
        word = "undecided"
    else:
        word = "reproduced" if holding == len(verdicts) else "partly" if holding else "not reproduced"
    return f"{word} ({holding} of {len(verdicts)})"


KINDS = ("thesis", "detail", "setup")
DATA = ("real", "generated")
_KNOWN = {
    *(
        "source",
        "kind",
        "data",
        "statement",
        "experiment",
        "figure",
        "minus",
        "reproduces",
        "reason",
        "recorded",
        "max_drift",
        "before",
        "mended",
        "published",
    ),
    *("expected", "tolerance", "at_least", "at_most"),
}


def _claim(entry: dict[str, Any]) -> Claim:
    what = f"claim {entry.get('source')!r}: {entry.get('statement')!r}"
    if unknown := sorted(set(entry) - _KNOWN):
        raise ParameterError(f"{what} has unknown keys {', '.join(unknown)}")
    if "expected" in entry:
        low, high = entry["expected"] - entry["tolerance"], entry["expected"] + entry["tolerance"]
    else:
        low, high = entry.get("at_least", -math.inf), entry.get("at_most", math.inf)
    if math.isinf(low) and math.isinf(high):
        raise ParameterError(f"{what} holds for every number: give expected and tolerance, at_least or at_most")
    if entry.get("kind") not in KINDS or entry.get("data") not in DATA:
        raise ParameterError(f"{what} needs a kind ({', '.join(KINDS)}) and data ({', '.join(DATA)})")
    if not entry["reproduces"] and not entry.get("reason"):
        raise ParameterError(f"{what} is not expected to reproduce: give a reason")
    if ("recorded" in entry) != ("max_drift" in entry):
        raise ParameterError(f"{what}: give recorded and max_drift together, or neither")
    if ("before" in entry) != ("mended" in entry):
        raise ParameterError(f"{what}: give before and mended together, or neither")
    return Claim(
        source=entry["source"],
        kind=entry["kind"],
        data=entry["data"],
        statement=entry["statement"],
        experiment=entry["experiment"],
        figure=tuple(entry["figure"]),
        minus=tuple(entry.get("minus", ())),
        low=low,
        high=high,
        reproduces=entry["reproduces"],
        reason=entry.get("reason", ""),
        recorded=entry.get("recorded"),
        max_drift=entry.get("max_drift", math.inf),
        before=entry.get("before", ""),
        mended=entry.get("mended", ""),
        published=entry.get("published", ""),
    )


def _number(claim: Claim, figures: Mapping[str, Any]) -> float:
    value = _at(claim, claim.figure, figures)
    return value - _at(claim, claim.minus, figures) if claim.minus else value


def _at(claim: Claim, path: tuple[str | int, ...], figures: Mapping[str, Any]) -> float:
    value: Any = figures.get(claim.experiment)
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            raise ParameterError(
                f"claim {claim.source!r}: {claim.statement!r}: {claim.experiment} has no figure {list(path)}: "
                f"{step!r} not found"
            ) from None
    return float(value)
