"""What people chose for a query, next to what a model predicts for it.

A model that was trained on the clicks of a query remembers some of them, and counting these clicks again around its
score counts them twice; a model that has not seen the query knows less of it. So the score is the mean of three rates
of choices: what the model predicts, whose share falls as people look, and what is expected once their looks and choices
are added to a prediction, that of the model and that of models that had not seen the query.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from kinrank.arrays import Float32, Float64, State
from kinrank.data.hashes import IdHashes, hash_texts, hashes_of, keys_of, pair_hashes
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError, StoreError
from kinrank.memory.evidence import JUDGMENT_LOOKS, Evidence, Totals, joined_days
from kinrank.memory.rate import Calibration, LaterClicks, Posterior, choose_posterior
from kinrank.rankers.base import Ranker
from kinrank.store import ModelRecord, nest, read_model_and_examples, unnest, write_model

# --- the evidence of a model folder: in it, or in a folder of its own that the model names ----------------------------


_META = "meta"


def evidence_state(evidence: Evidence) -> State:
    """Return evidence as arrays, with what its folder says about its source."""
    meta = json.dumps(evidence.meta | {"days": evidence.days}).encode()
    return {**evidence.get_state(), _META: np.frombuffer(meta, dtype=np.uint8)}


def evidence_from_state(state: State) -> Evidence:
    """Return the evidence of `evidence_state`; models of an earlier version do not say what its source is."""
    meta = state.get(_META)
    return Evidence(state, None if meta is None else json.loads(meta.tobytes()))


def path_from(folder: str | os.PathLike[str] | None, evidence: str | os.PathLike[str]) -> str:
    """Return the path of evidence for a model in a folder: relative to that if it was given as a relative path.

    So a model and its evidence can be moved together, and a model that is loaded elsewhere finds it.
    """
    given = os.fspath(evidence)
    if folder is None or os.path.isabs(given):
        return os.path.abspath(given)
    return os.path.relpath(os.path.realpath(given), os.path.realpath(folder))


def find_evidence(record: ModelRecord) -> str | None:
    """Return the folder of the evidence of a model; None if it has none of its own.

    Raises
    ------
    StoreError
        If it is not there.
    """
    named: str | None = record.params.get("evidence")
    if named is None:
        return None
    # Earlier versions stored the path as it was typed.
    places = [named] if record.path is None else [os.path.join(os.path.realpath(record.path), named), named]
    for place in places:
        if os.path.isdir(place):
            return os.path.abspath(place)
    raise StoreError(
        f"{record.path or 'the model'}: its evidence is not at {os.path.normpath(places[0])}: copy the folder of "
        "kinrank clicks --evidence there, or publish the model where both are (kinrank admin models ADDRESS --publish "
        "MODEL), which puts the evidence into it"
    )


@contextmanager
def with_evidence_inside(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a model folder that needs no other folder: the given one, or a temporary copy with its evidence."""
    record, examples = read_model_and_examples(path)
    found = find_evidence(record)
    if found is None:
        yield Path(path)
        return
    arrays = record.arrays | nest(chosen=nest(evidence=evidence_state(Evidence.open(found, verify=True))))
    whole = replace(record, params=record.params | {"evidence": None}, arrays=arrays)
    with tempfile.TemporaryDirectory(prefix="kinrank-publish-") as place:
        write_model(Path(place) / "model", whole, examples)
        yield Path(place) / "model"


# --- what people chose next to the scores of a model ------------------------------------------------------------------


_LATE = 0.8  # share of the days after which clicks are held out
_MODEL_LOOKS = 10.0  # looks that halve the share of the model's own prediction, which is half of all without any
_REMEMBERS_ALL = 0.12  # gain of log likelihood per choice from which a model that saw the clicks counts them twice


class _LiveJudgments:
    """Judged queries by id, as evidence.

    Each judgment has the id of its query (`owner`), hashes of query and document, and what it counts as.
    """

    def __init__(
        self,
        qid: NDArray[Any],
        owner: NDArray[Any],
        query: IdHashes,
        document: IdHashes,
        looks: Float64,
        choices: Float64,
    ) -> None:
        self.qid = qid
        self._owner = owner
        self._cells = query, document, looks, choices
        self.evidence = Evidence.from_hashes(*self._cells)

    @classmethod
    def none(cls) -> _LiveJudgments:
        """Return no judgments."""
        ids, hashes, numbers = np.empty(0, dtype=np.str_), np.empty(0, dtype=np.uint64), np.empty(0)
        return cls(ids, ids, hashes, hashes, numbers, numbers)

    def added(self, queries: QuerySet, best: float) -> _LiveJudgments:
        """Return these judgments and those of further queries, given the best grade.

        Without texts and document ids they say nothing.
        """
        hashes = hashes_of(queries)
        if hashes is None:
            return self
        rows = np.flatnonzero(queries.judged)
        owner, qid = queries.query_of_row[rows], queries.qid.astype(np.str_)
        looks = np.full(len(rows), JUDGMENT_LOOKS)
        choices = looks * np.clip(queries.grades[rows].astype(np.float64) / best, 0.0, 1.0)
        before = self._cells
        return _LiveJudgments(
            np.concatenate([self.qid, qid]),
            np.concatenate([self._owner, qid[owner]]),
            np.concatenate([before[0], hashes[0][owner]]),
            np.concatenate([before[1], hashes[1][rows]]),
            np.concatenate([before[2], looks]),
            np.concatenate([before[3], choices]),
        )

    def without(self, qid: ArrayLike) -> _LiveJudgments:
        """Return these judgments without those of some queries."""
        wanted = np.atleast_1d(np.asarray(qid)).astype(np.str_)
        kept, rows = (~np.isin(ids, wanted) for ids in (self.qid, self._owner))
        query, document, looks, choices = self._cells
        return _LiveJudgments(
            self.qid[kept], self._owner[rows], query[rows], document[rows], looks[rows], choices[rows]
        )

    def get_state(self) -> State:
        """Return the arguments of the constructor by name."""
        names = ("query", "document", "looks", "choices")
        return {"qid": self.qid, "owner": self._owner, **dict(zip(names, self._cells, strict=True))}


class _Part(NamedTuple):
    """Evidence, and which of it counts how much; the arguments of `Evidence.totals`."""

    evidence: Evidence
    half_life: float | None = None
    days: tuple[int, int] | None = None
    until: int | None = None
    before: int | None = None

    @property
    def counted(self) -> dict[str, Any]:
        """The arguments by name."""
        return {"half_life": self.half_life, "days": self.days, "until": self.until, "before": self.before}


class _HeldOutScores(NamedTuple):
    """Scores of candidates by models that had not seen their queries, by the hash of query and document, ascending."""

    pair: IdHashes
    score: Float32

    @classmethod
    def of(cls, queries: QuerySet, scores: Float64) -> _HeldOutScores:
        """Keep the scores of queries with texts and document ids."""
        pair, first = np.unique(_pairs(queries, hashes_of(queries)), return_index=True)
        return cls(pair, scores[first].astype(np.float32))

    def replace_in(self, scores: Float64, pair: IdHashes) -> Float64:
        """Return scores of candidates, with those that are kept in place of the given ones."""
        if not len(self.pair):
            return scores
        place = np.minimum(np.searchsorted(self.pair, pair), len(self.pair) - 1)
        return np.where(self.pair[place] == pair, self.score[place], scores)


def _pairs(queries: QuerySet, hashes: tuple[IdHashes, IdHashes] | None) -> IdHashes:
    if hashes is None:
        return np.empty(0, dtype=np.uint64)
    return pair_hashes(np.repeat(hashes[0], queries.sizes), hashes[1])


def check_findable(queries: QuerySet) -> None:
    """Raise `DataError` if what people chose cannot be found for queries."""
    if hashes_of(queries) is None:
        raise DataError(
            "what people chose is found by the texts of queries and the ids of documents, and these queries have "
            "not both: pass query_text and doc_id (columns text and doc_id), or leave out the evidence"
        )


@dataclass(frozen=True, eq=False)
class ChosenPart:
    """What people chose for queries, and how it counts next to the scores of a model."""

    calibration: Calibration
    """From scores to rates of choices."""
    posterior: Posterior
    """How much predictions and evidence count."""
    held_out: _HeldOutScores
    """Scores of queries whose clicks the model was trained on; none if it was not trained on clicks."""
    inside: float
    """The share of the rates around the model's own scores; the rest is of rates around those held out."""
    best: float
    """The best grade."""
    evidence: Evidence | None
    recent: Evidence | None = None
    """What people chose, and what they chose since, which is not saved."""
    judgments: _LiveJudgments | None = None
    """Judgments that were added."""

    # --- fitting ----------------------------------------------------------------------------------------------------

    @classmethod
    def of(
        cls, queries: QuerySet, scores: Float64, unseen: Float64, evidence: Evidence | None, *, from_clicks: bool
    ) -> ChosenPart | None:
        """Learn what scores mean, and how much they count; None if nothing was chosen and nothing has a good grade.

        `unseen` are scores by models that have not seen the queries; `from_clicks` tells whether grades are clicks.
        """
        if evidence is not None:
            check_findable(queries)
        best = 1.0 if queries.y is None else max(float(queries.grades.max()), 1.0)
        held_out = _HeldOutScores.of(queries, unseen) if from_clicks else _HeldOutScores(*_NOTHING)
        seen = None if evidence is None else evidence.totals(queries)
        if evidence is None or seen is None or seen.choices.sum() <= 0:
            share = np.maximum(queries.grades.astype(np.float64), 0.0) / best
            if not share.any():
                return None
            calibration = Calibration().fit(unseen, queries.offsets, Totals(np.ones(queries.n_rows), share))
            return cls(calibration, Posterior(rate=calibration.rate_), held_out, 1.0, best, evidence)
        calibration = Calibration().fit(unseen, queries.offsets, seen)
        posterior = _choose(queries, unseen, evidence, calibration.rate_)
        inside = 1.0
        if from_clicks:
            by_model, by_others = (_likelihood(values, queries, seen) for values in (scores, unseen))
            inside = float(np.clip(1.0 - (by_model - by_others) / _REMEMBERS_ALL, 0.0, 1.0))
        return cls(calibration, posterior, held_out, inside, best, evidence)

    # --- ranking ----------------------------------------------------------------------------------------------------

    def scores(self, queries: QuerySet, scores: Float64) -> Float64:
        """Return the scores of queries with evidence, and the given ones of the others."""
        own, hashes = self._totals(queries)
        if not np.count_nonzero(own.looks) and not np.count_nonzero(own.choices):
            return scores
        placed = self._placed(queries, scores, own, hashes, [self.posterior.mean])[0]
        if len(queries) == 1:
            return placed
        known = np.logical_or.reduceat((own.looks != 0) | (own.choices != 0), queries.offsets[:-1])
        return np.where(np.repeat(known, queries.sizes), placed, scores)

    def with_and_without(self, queries: QuerySet, scores: Float64) -> tuple[Float64, Float64]:
        """Return the scores of queries with what people chose, and those without it on the same scale."""
        own, hashes = self._totals(queries)
        with_it, without = self._placed(queries, scores, own, hashes, [self.posterior.mean, lambda p, _: p])
        return with_it, without

    def draw(self, queries: QuerySet, scores: Float64, seed: int) -> tuple[Float64, Float64]:
        """Return the scores of all queries, and scores by rates of choices drawn from what they may be."""
        own, hashes = self._totals(queries)
        rng = np.random.default_rng(seed)
        drawn = [self.posterior.mean, lambda p, looked: self.posterior.draw(p, looked, rng)]
        expected, tried = self._placed(queries, scores, own, hashes, drawn)
        return expected, tried

    def _placed(
        self,
        queries: QuerySet,
        scores: Float64,
        own: Totals,
        hashes: tuple[IdHashes, IdHashes] | None,
        rates_of: Sequence[Any],
    ) -> list[Float64]:
        """Return scores by several functions of predictions and evidence."""
        predicted = [(self.calibration.predict(scores, queries.offsets), self.inside)]
        if self.inside < 1.0:
            outside = self.held_out.replace_in(scores, _pairs(queries, hashes))
            predicted.append((self.calibration.predict(outside, queries.offsets), 1.0 - self.inside))
        looked = np.maximum.reduceat(np.maximum(own.looks, own.choices), queries.offsets[:-1])
        share = np.where(looked < JUDGMENT_LOOKS, _MODEL_LOOKS / (_MODEL_LOOKS + looked), 0.0)  # judgments are obeyed
        share = np.repeat(share, queries.sizes)
        by_model = share * predicted[0][0]
        return [
            (by_model + sum(weight * rates(p, own) for p, weight in predicted)) / (1.0 + share) for rates in rates_of
        ]

    def totals(self, queries: QuerySet) -> Totals:
        """Return the looks and choices of candidates, recent ones and judgments among them."""
        return self._totals(queries)[0]

    def _totals(self, queries: QuerySet) -> tuple[Totals, tuple[IdHashes, IdHashes] | None]:
        parts = self._parts
        hashes = hashes_of(queries) if parts else None
        if hashes is None:
            return Totals.zeros(queries.n_rows), None
        return Totals.sum([part.evidence.totals(queries, **part.counted, hashes=hashes) for part in parts]), hashes

    @property
    def _parts(self) -> list[_Part]:
        """All evidence, each look and choice in one part.

        From some day on only what is recent counts, and before it only the folder, so that nothing counts twice.
        Judgments do not age.
        """
        parts, half_life = [], self.posterior.half_life
        dated = None if self.evidence is None else self.evidence.days
        since = None if self.recent is None else self.recent.days
        both = joined_days(dated, since)
        live = None
        if self.evidence is not None:
            if self.recent is not None and dated is not None and since is not None and dated[1] >= since[0]:
                live = _first_live_day(self.evidence, self.recent)
            until = None if both is None else both[1]
            parts.append(_Part(self.evidence, half_life, until=until, before=live))
        if self.recent is not None and since is None:
            parts.append(_Part(self.recent))
        elif self.recent is not None and since is not None and (live is None or live <= since[1]):
            parts.append(_Part(self.recent, half_life, (live or since[0], since[1])))
        return parts if self.judgments is None else [*parts, _Part(self.judgments.evidence)]

    def remembered(self, query: QuerySet, most: int) -> list[str]:
        """Return documents, best first, that people chose for one query and that are not among its candidates.

        Those that too few clients chose are not among them. They are in the order of their rates of choices, if an
        average rate is expected of them.
        """
        keys = keys_of(query)
        if keys is None or query.doc_id is None:
            return []
        parts = self._parts
        found = [part.evidence.of_query(keys[0], **part.counted) for part in parts]
        documents = np.unique(np.concatenate([np.empty(0, dtype=np.uint64), *(each for each, _ in found)]))
        documents = np.setdiff1d(documents, hash_texts(query.doc_id))
        own = _sums(documents, [(each, totals) for each, totals in found])
        few = _sums(documents, [(each, totals.few) for each, totals in found if totals.few is not None])
        chosen = np.flatnonzero(own.choices - few.choices > 0)
        mean = self.posterior.mean(np.full(len(documents), self.posterior.rate), own.held_back(few))
        best = documents[chosen[np.argsort(-mean[chosen], kind="stable")]]
        named: dict[int, str] = {}
        for part in parts:
            ids = part.evidence.ids.find_hashes(best)
            named |= {place: name for place, name in enumerate(ids) if name is not None}
        return [named[place] for place in sorted(named)][:most]

    # --- learning and forgetting ------------------------------------------------------------------------------------

    def added(self, queries: QuerySet) -> ChosenPart:
        """Return the same with the judgments of further queries."""
        return replace(self, judgments=(self.judgments or _LiveJudgments.none()).added(queries, self.best))

    def without(self, qid: ArrayLike) -> ChosenPart:
        """Return the same without the added judgments of some queries."""
        return self if self.judgments is None else replace(self, judgments=self.judgments.without(qid))

    def remark(self) -> str:
        """Return in words what was found."""
        ages = "does not age" if self.posterior.half_life is None else f"halves in {self.posterior.half_life:g} days"
        return f"this query: a prediction counts as {self.posterior.strength:g} looks; what people chose {ages}"

    # --- saving -----------------------------------------------------------------------------------------------------

    def get_state(self, *, with_evidence: bool) -> State:
        """Return everything learned; evidence in a folder of its own is not part of it."""
        stored = self.evidence if with_evidence else None
        return nest(
            calibration=self.calibration.get_state(),
            judgments={} if self.judgments is None else self.judgments.get_state(),
            evidence={} if stored is None else evidence_state(stored),
            held_out=self.held_out._asdict(),
        ) | {
            "posterior": self.posterior.to_array(),
            "numbers": np.array([self.inside, self.best]),
        }

    @classmethod
    def from_state(cls, state: State, folder: str | os.PathLike[str] | Evidence | None) -> ChosenPart | None:
        """Restore what `get_state` returned; None if that is nothing. `folder` has the evidence that is not in it."""
        if not state:
            return None
        stored, judgments = unnest(state, "evidence"), unnest(state, "judgments")
        return cls(
            Calibration().set_state(unnest(state, "calibration")),
            Posterior.from_array(state["posterior"]),
            _HeldOutScores(**{name: np.asarray(values) for name, values in unnest(state, "held_out").items()}),
            inside=float(state["numbers"][0]),
            best=float(state["numbers"][1]),
            evidence=evidence_from_state(stored) if stored else opened(folder),
            judgments=_LiveJudgments(**judgments) if judgments else None,
        )


def _first_live_day(folder: Evidence, recent: Evidence) -> int:
    """Return the day from which on recent evidence counts in place of a folder: so most looks do, and late if equal."""
    (first, last), (since, until) = folder.days or (0, -1), recent.days or (0, -1)
    start, stop = min(first, since), max(last, until) + 1
    looks = np.zeros((2, stop - start))
    looks[0, first - start : last + 1 - start] = folder.looks_by_day
    looks[1, since - start : until + 1 - start] = recent.looks_by_day
    counted = np.r_[0.0, np.cumsum(looks[0])] + np.r_[np.cumsum(looks[1, ::-1])[::-1], 0.0]
    return start + int(np.flatnonzero(counted == counted.max())[-1])


class WithChoices(BaseEstimator):
    """A fitted ranker, and what people chose next to its scores; to measure what that adds."""

    def __init__(self, ranker: Ranker, evidence: Evidence) -> None:
        self.ranker = ranker
        self.evidence = evidence

    def fit(self, queries: QuerySet) -> Self:
        """Calibrate on what people chose for those of the queries that the ranker has not learned from, if any."""
        learned = self.ranker.learned_from(queries)
        unseen = queries if learned is None or learned.all() else queries[~learned]
        if self.evidence.totals(unseen).choices.sum() <= 0:
            unseen = queries
        scores = self.ranker.predict(unseen)
        self.chosen_ = ChosenPart.of(unseen, scores, scores, self.evidence, from_clicks=False)
        return self

    def predict(self, queries: QuerySet) -> Float64:
        """Return a score for every row."""
        scores = self.ranker.predict(queries)
        return scores if self.chosen_ is None else self.chosen_.scores(queries, scores)

    def learned_from(self, queries: QuerySet) -> NDArray[np.bool_] | None:
        """Return which of these queries the ranker has learned from; None if that is unknown."""
        return self.ranker.learned_from(queries)


_NOTHING = np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.float32)


def opened(evidence: str | os.PathLike[str] | Evidence | None) -> Evidence | None:
    """Return evidence, opened if it is given by its folder."""
    return evidence if evidence is None or isinstance(evidence, Evidence) else Evidence.open(evidence)


def _choose(queries: QuerySet, unseen: Float64, evidence: Evidence, rate: float) -> Posterior:
    """Choose on the clicks of the last fifth of the days how much evidence counts."""
    if evidence.days is None:
        return Posterior(rate=rate)
    first, last = evidence.days
    border = first + int(_LATE * (last - first + 1))
    days = first, border - 1
    early = evidence.totals(queries, days=days)
    if border > last or early.choices.sum() <= 0:
        return Posterior(rate=rate)
    late = evidence.totals(queries, days=(border, last))
    rows = np.flatnonzero(late.looks > 0)
    clicks = LaterClicks(
        Calibration().fit(unseen, queries.offsets, early).predict(unseen, queries.offsets)[rows],
        queries.query_of_row[rows],
        lambda half_life: evidence.totals(queries, half_life=half_life, days=days).take(rows),
        late.take(rows),
    )
    return choose_posterior(clicks, rate, border - first)


def _likelihood(scores: Float64, queries: QuerySet, seen: Totals) -> float:
    """Return the log likelihood per choice of what people chose, by scores that are calibrated to it."""
    p = Calibration().fit(scores, queries.offsets, seen).predict(scores, queries.offsets)
    total = seen.choices @ np.log(np.maximum(p, 1e-4)) - seen.looks @ p
    return float(total / seen.choices.sum())


def _sums(documents: IdHashes, cells: Sequence[tuple[IdHashes, Totals]]) -> Totals:
    """Return the sums of looks and choices of documents, which are sorted."""
    looks, choices = np.zeros(len(documents)), np.zeros(len(documents))
    for hashes, totals in cells:
        places = np.searchsorted(documents, hashes)
        known = places < len(documents)
        known[known] = documents[places[known]] == hashes[known]
        np.add.at(looks, places[known], totals.looks[known])
        np.add.at(choices, places[known], totals.choices[known])
    return Totals(looks, choices)
