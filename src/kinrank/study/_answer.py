"""The verdict of every study and the words for it: what was compared with what, and what follows.

`Claim` is one tested difference between two rankings that both have names. `Answer` is what the rungs of
`kinrank.study.ladder` say together: what the recommended ranker gains over one model for all queries, and how much of
that comes from weights per query.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from numpy.typing import ArrayLike

from kinrank.arrays import Float64
from kinrank.measure import PairedComparison, compare_paired, holm
from kinrank.measure.base import mean_of

Verdict = Literal["gain", "loss", "none", "unclear"]

LEVEL = 0.05
"""P-value, after Holm's correction for all claims of an answer, up to which a difference is significant."""
MIN_GAIN = 0.005
"""Smallest gain that is worth a model per query, by default."""

RUNGS = {
    "engine": "the engine as it is",
    "linear": "one linear model",
    "local": "a linear model per query",
    "trees": "LightGBM",
    "everyone": "LightGBM with everyone",
    "memory": "LightGBM with everyone and kin",
    "bag": "a bag of LightGBM models",
    "without": "kin without weights per query",
    "kin": "kin",
}
"""The rungs of the ladder from bottom to top, and their names."""
STEPS = ("engine", "trees", "everyone", "memory", "without", "kin")
"""The rungs that are shown first; the others are details."""
CHOICES = "choices"
"""The rung on top of the others, if there is evidence of what people chose."""
ONE_MODEL = ("engine", "linear", "trees")
"""Rungs with one model for all queries: what a search team runs without kinrank."""


@dataclass(frozen=True)
class Claim:
    """A tested difference between two rankings.

    Examples
    --------
    >>> paired = compare_paired([0.5, 0.7, 0.9, 0.4], [0.4, 0.6, 0.7, 0.3])
    >>> Claim("kin", "LightGBM", paired).sentence()
    'kin gains +0.1250 over LightGBM'
    """

    name: str
    against: str
    """The two rankings; the difference is positive if the first is better."""
    paired: PairedComparison
    """The comparison. Its p-value is that of this pair alone, and the same in every study."""
    p_holm: float | None = None
    """The p-value after Holm's correction for the claims that are made together; None for a single claim."""
    n_claims: int = 1
    """Number of claims that are made together."""
    min_gain: float = MIN_GAIN
    """Smallest gain that is worth having."""

    @property
    def verdict(self) -> Verdict:
        """Gain or loss if significant, "none" if a gain of `min_gain` is ruled out, else "unclear"."""
        if (self.paired.p if self.p_holm is None else self.p_holm) <= LEVEL:
            return "gain" if self.paired.mean_difference > 0 else "loss"
        return "none" if self.paired.interval[1] < self.min_gain else "unclear"

    def sentence(self) -> str:
        """Return the verdict in words, with the names of both sides."""
        change = self.paired.mean_difference
        if self.verdict == "gain":
            return f"{self.name} gains {change:+.4f} over {self.against}"
        if self.verdict == "loss":
            return f"{self.name} loses {-change:.4f} to {self.against}"
        if change == 0:
            return f"{self.name} and {self.against} have the same mean"
        direction = "higher" if change > 0 else "lower"
        return f"{self.name} is {abs(change):.4f} {direction} than {self.against}, which is not significant"

    @property
    def evidence(self) -> str:
        """The interval and the p-value, with the claims that Holm's correction covers."""
        low, high = self.paired.interval
        return f"{self.paired.confidence:.0%} interval {low:+.4f} to {high:+.4f}, {self.tested}"

    @property
    def tested(self) -> str:
        """The p-value, and the claims that Holm's correction covers."""
        corrected = ""
        if self.p_holm is not None:
            corrected = f", {self.p_holm:.2g} after Holm's correction for {self.n_claims} claims"
        return f"p = {self.paired.p:.2g}{corrected}"

    @property
    def open(self) -> str:
        """What the interval leaves open if nothing is significant: the largest gain and the largest loss."""
        low, high = self.paired.interval
        loss = f", nor is a loss of up to {-low:.4f}" if low < 0 else ""
        return f"a gain of up to {high:.4f} is not ruled out{loss}"


@dataclass(frozen=True)
class NearAndFar:
    """A difference between two rankings, for queries with a near training query and for the others.

    Examples
    --------
    >>> paired = compare_paired([0.5, 0.7, 0.9, 0.4], [0.4, 0.6, 0.7, 0.3])
    >>> NearAndFar("memory", "LightGBM", 0.6, 0, 4, None, paired).text
    'memory vs. LightGBM: none of the 4 queries has a near training query (similarity above 0.6)'
    """

    name: str
    against: str
    """The two rankings; the difference is positive if the first is better."""
    similarity: float
    """Similarity of texts above which queries are near."""
    n_near: int
    n_far: int
    """Number of queries with a near training query, and without one."""
    near: PairedComparison | None
    far: PairedComparison | None
    """Their differences; None if there are fewer than two queries, or groups of them."""

    @property
    def text(self) -> str:
        """Both differences in one line."""
        pair, near = f"{self.name} vs. {self.against}", f"a near training query (similarity above {self.similarity:g})"
        n_queries = self.n_near + self.n_far
        if not self.n_near or not self.n_far:
            return f"{pair}: {'each' if self.n_near else 'none'} of the {n_queries:,} queries has {near}"
        parts = _in_words(self.near, self.n_near), _in_words(self.far, self.n_far)
        return f"{pair}: {parts[0]} with {near}, {parts[1]} without one"


def _in_words(paired: PairedComparison | None, n_queries: int) -> str:
    if paired is None:
        return f"too few to compare for {n_queries:,} queries"
    low, high = paired.interval
    interval = f"{paired.confidence:.0%}: {low:+.4f} to {high:+.4f}, p = {paired.p:.2g}"
    return f"{paired.mean_difference:+.4f} ({interval}) for {n_queries:,} queries"


def together(claims: Sequence[Claim]) -> list[Claim]:
    """Return the claims with Holm's correction for all of them."""
    if len(claims) < 2:
        return list(claims)
    corrected = holm([claim.paired.p for claim in claims]).tolist()
    return [replace(claim, p_holm=p, n_claims=len(claims)) for claim, p in zip(claims, corrected, strict=True)]


@dataclass(frozen=True)
class TrafficPart:
    """What choices gain on a part of the traffic."""

    name: str
    """"recurring" if people looked at candidates of the query before, "similar" if they did so only for similar
    queries, "new" if neither, or "all".
    """
    n_queries: int
    """Number of queries that were asked in the measured days."""
    share: float
    """Their share of the looks."""
    mean: float
    without: float
    """Mean of the measure with and without choices, weighted by looks; NaN if there is no query."""
    paired: PairedComparison | None
    """Their difference, weighted by looks; None if there are fewer than two queries, or groups of them."""


@dataclass(frozen=True)
class TrafficAnswer:
    """What people's choices before a day gain on the traffic from that day on."""

    since: str
    """The first measured day."""
    covered: float
    """Share of the looks of the measured days that are at candidates of the measured queries."""
    parts: tuple[TrafficPart, ...]
    """Recurring, similar and new queries, and all."""
    claim: Claim
    """The ranker with choices compared with the one without, on all traffic."""
    today: TrafficPart | None = None
    """The ranker with choices compared with the engine as it is, on all traffic; None without the engine's order."""

    @property
    def table(self) -> list[tuple[str, ...]]:
        """Headings, and a row of texts for each part."""
        headings = "queries", "share of looks", "without", "choices", "difference", "95% interval"
        rows: list[tuple[str, ...]] = [(f"since {self.since}", *headings)]
        for part in self.parts:
            means = ["", "", ""]
            if part.n_queries:
                means = [f"{part.without:.4f}", f"{part.mean:.4f}", f"{part.mean - part.without:+.4f}"]
            interval = "" if part.paired is None else "{:+.4f} to {:+.4f}".format(*part.paired.interval)
            rows.append((part.name, f"{part.n_queries:,}", f"{part.share:.1%}", *means, interval))
        return rows

    @property
    def note(self) -> str:
        """What the table shows."""
        return (
            f"Shares and means are of the looks at these queries from {self.since} on: {self.covered:.1%} of all. "
            "People chose for recurring queries before, for similar ones only with nearly the same text, for new ones "
            "never. Only earlier choices rank."
        )

    @property
    def text(self) -> str:
        """The result: from today's order to the recommended one, and what choices gain."""
        found = f"Weighted by the traffic from {self.since} on, {self.claim.sentence()} ({self.claim.evidence})."
        if self.today is None or self.today.paired is None:
            return found
        part, (low, high) = self.today, self.today.paired.interval
        words = f"the engine has {part.without:.4f} and {self.claim.name} {part.mean:.4f}"
        return f"{found} There {words} ({part.mean - part.without:+.4f}, 95%: {low:+.4f} to {high:+.4f})."


@dataclass(frozen=True)
class Answer:
    """What the ladder says."""

    means: Mapping[str, float]
    """Mean of each measured rung, bottom first."""
    gain: Claim
    """The highest rung with a model per query, compared with the better of the measured rungs of one model for all
    queries. The better one is chosen on the same queries, which favors it.
    """
    own: Claim | None = None
    """What weights per query add: the same rung compared with the one that lacks only them. None if that one was
    not measured, or is the other side of `gain`.
    """
    note: str = ""
    """Which rungs are missing and why, or which other rung is better than `kin`; or an empty text."""
    memory: Claim | None = None
    """What memory adds to LightGBM; None if that was not measured. It is a question of its
    own, so that Holm's correction leaves it out.
    """
    choices: TrafficAnswer | None = None
    """What people's choices add to the highest rung with a model per query, by traffic; None without evidence."""
    near_and_far: tuple[NearAndFar, ...] = ()
    """The claims about rungs that remember judgments, for queries with a near training query and without one."""

    @property
    def verdict(self) -> Verdict:
        """Whether the recommended ranker gains over one model for all queries."""
        return self.gain.verdict

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The claims about rungs: the gain, what weights per query add, and what memory adds."""
        return tuple(claim for claim in (self.gain, self.own, self.memory) if claim is not None)

    @property
    def line(self) -> str:
        """What to do, and from which mean to which, in one line."""
        gain, best = self.gain, self._best
        start = f"the engine has {self.means['engine']:.4f}, " if "engine" in self.means and best != "engine" else ""
        after = self.means[subject_of(self.means) or ""]
        means = f"Measured: {start}{gain.against} {self.means[best]:.4f}, {gain.name} {after:.4f}"
        return f"{self.advice} {means} ({gain.paired.mean_difference:+.4f}, {gain.evidence})."

    @property
    def _best(self) -> str:
        """The best of the measured rungs of one model for all queries."""
        return max((rung for rung in ONE_MODEL if rung in self.means), key=self.means.__getitem__)

    @property
    def steps(self) -> list[tuple[str, float, float | None]]:
        """The rungs that are shown first, with their means and their differences to the rung before."""
        shown = {*STEPS, self._best} if "trees" in self.means else RUNGS
        rungs = [rung for rung in RUNGS if rung in shown and rung in self.means]
        means = [self.means[rung] for rung in rungs]
        steps = [None, *(after - before for before, after in pairwise(means))]
        return [(RUNGS[rung], mean, step) for rung, mean, step in zip(rungs, means, steps, strict=True)]

    @property
    def own_verdict(self) -> Verdict | None:
        """Whether weights per query gain; None if that was not measured."""
        return self.gain.verdict if self.own is None and "kin" not in self.means else _verdict(self.own)

    @property
    def result(self) -> str:
        """The result in one sentence: both differences, with the names of both sides."""
        gain, own = self.gain, self.own
        small = gain.verdict == "gain" and gain.paired.mean_difference < gain.min_gain
        least = f", less than the minimum of {gain.min_gain:g}" if small else ""
        start = f"{gain.sentence()} ({gain.evidence}{least})"
        if own is None:
            return f"{start}."
        change = own.paired.mean_difference
        if own.verdict == "gain":
            part = "of it comes" if gain.verdict == "gain" else "of its score comes"
            return f"{start}; {change:+.4f} {part} from weights per query ({own.evidence})."
        if own.verdict == "loss":
            return f"{start}; weights per query cost it {-change:.4f} ({own.evidence})."
        return f"{start}; that weights per query add to it is not shown ({change:+.4f}, {own.evidence})."

    @property
    def advice(self) -> str:
        """What to do."""
        gain = self.gain
        if gain.verdict == "gain":
            return f"Use {gain.name}."
        if gain.verdict == "unclear":
            return f"Keep {gain.against}, and judge more queries: {gain.open}."
        if gain.verdict == "none":
            return f"Keep {gain.against}: a gain of {gain.min_gain:g} is ruled out, and it is simpler."
        return f"Keep {gain.against}: it is better and simpler."

    @property
    def text(self) -> str:
        """The result, what to do, what memory and choices add, and the note."""
        parts = [self.result, self.advice]
        if self.memory is not None:
            parts.append(f"{self.memory.sentence()} ({self.memory.evidence}).")
        if self.choices is not None:
            parts.append(self.choices.text)
            parts += ["Add them: kinrank train --evidence."] if self.choices.claim.verdict == "gain" else []
        return " ".join(part for part in (*parts, self.note) if part)


def answer(
    values: Mapping[str, Float64],
    names: Mapping[str, str] | None = None,
    *,
    groups: ArrayLike | None = None,
    min_gain: float = MIN_GAIN,
    note: str = "",
    choices: TrafficAnswer | None = None,
) -> Answer | None:
    """Return what the measured rungs say, or None if none has a model per query, or none has one for all.

    `values` has the measure of each query for the rungs of `RUNGS` that were measured; `names` replaces their names.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> linear, own = rng.random(400) / 2, rng.normal(0.05, 0.02, 400)
    >>> trees = linear + rng.normal(0.2, 0.02, 400)
    >>> found = answer({"linear": linear, "trees": trees, "without": trees, "kin": trees + own})
    >>> found.verdict, found.own_verdict, found.gain.against
    ('gain', 'gain', 'LightGBM')
    """
    called = {**RUNGS, **(names or {})}
    means = {rung: mean_of(values[rung]) for rung in (*RUNGS, CHOICES) if rung in values}
    subject = subject_of(means)
    single = [rung for rung in ONE_MODEL if rung in means]
    if subject is None or not single:
        return None

    def claim(rung: str, other: str) -> Claim:
        paired = compare_paired(values[rung], values[other], groups=groups)
        return Claim(called[rung], called[other], paired, min_gain=min_gain)

    best = max(single, key=means.__getitem__)
    lacking = "without" if subject == "kin" else "linear"
    pairs = [(subject, best)]
    if lacking in means and lacking != best:
        pairs.append((subject, lacking))
    claims = together([*(claim(a, b) for a, b in pairs), *([] if choices is None else [choices.claim])])
    own = claims[1] if len(pairs) > 1 else None
    memory = claim("memory", "trees") if {"memory", "trees"} <= set(means) else None
    if not note and "trees" not in means:
        note = "Trees were not measured."
    elif not note and subject == "kin" and own is None:
        note = "How much of the difference comes from weights per query was not measured."
    if subject == "kin" and "local" in means:
        linear = claim("local", "kin")
        note = f"{note} But {linear.sentence()}: compare knn.".strip() if linear.verdict == "gain" else note
    added = None if choices is None else replace(choices, claim=claims[-1])
    return Answer(means, claims[0], own, note, memory, added)


def subject_of(rungs: Container[str]) -> str | None:
    """Return the highest rung with a model per query; None without one."""
    return next((rung for rung in ("kin", "local") if rung in rungs), None)


def _verdict(claim: Claim | None) -> Verdict | None:
    return None if claim is None else claim.verdict
