"""Choose a ranker, description, k and prior on the training queries, within a budget; resumable."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from sklearn.base import clone

from kinrank.arrays import Float64
from kinrank.data.files import claim_folder, write_json
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import has_text
from kinrank.describe import Describer
from kinrank.errors import ParameterError
from kinrank.learn._prepare import Missing
from kinrank.learn.lambdamart import LambdaMART
from kinrank.learn.rankrls import RankRLS
from kinrank.measure import NDCG, Measure
from kinrank.measure.base import mean_of
from kinrank.parallel import Serial, current_executor, map_ordered
from kinrank.rankers.base import Ranker
from kinrank.rankers.kin._settings import MOST_TREES
from kinrank.rankers.kin.ranker import KinRanker
from kinrank.rankers.knn.ranker import KnnRanker
from kinrank.rankers.persistence import from_settings, settings_of
from kinrank.rankers.registry import RANKERS
from kinrank.rankers.single import SingleRanker
from kinrank.study._answer import Answer, answer
from kinrank.study._folds import OnLeak
from kinrank.study._sweep import sweep_neighbors, sweep_trees
from kinrank.study.ladder import missing_trees, rung_of
from kinrank.study.peers import SHAPES
from kinrank.study.study import Study

# --- trials of a tuning study in a folder, so that an interrupted study can be resumed --------------------------------
#
# ::
#
#     study.json      data, measure and folds; another study cannot use the folder
#     trials.jsonl    one trial per line, written when it ends
#     values/N.npy    the measure of every query in trial N
#     settings.json   the ranker of the best trial so far


@dataclass(frozen=True)
class Trial:
    """A tried ranker and its quality."""

    key: str
    family: str
    stage: str
    """See `kinrank.study.tuning.Proposal`."""
    record: dict[str, Any]
    """Settings of the ranker with the best k and prior, from `kinrank.rankers.persistence.settings_of`."""
    quality: float
    """Mean of the measure on queries that the ranker was not fitted on."""
    seconds: float
    """Duration of the trial."""

    def make(self) -> Ranker:
        """Return the unfitted ranker."""
        ranker: Ranker = from_settings(self.record)
        return ranker


class _TrialLog:
    """Folder of a tuning study.

    Parameters
    ----------
    folder
        Path of the folder; created if missing. A folder of another study raises.
    protocol
        What must be equal for trials to be comparable: data, measure, folds.
    """

    def __init__(self, folder: str | Path, protocol: dict[str, Any]) -> None:
        self.folder = Path(folder)
        claim_folder(folder, "study.json", protocol, "tuning study")
        self.trials = self._read()
        if self.best is not None:  # the process may have been killed before writing the settings
            write_json(self.best.record, self._settings, indent=2)

    @property
    def best(self) -> Trial | None:
        """The first trial with the highest quality."""
        return max(self.trials, key=lambda trial: trial.quality, default=None)

    def values(self, trial: Trial) -> Float64:
        """Return the measure of every query in a trial."""
        values: Float64 = np.load(self._values(self.trials.index(trial)))
        return values

    def add(self, trial: Trial, values: Float64) -> None:
        """Append a trial with the measure of every query, and write its settings if it is the best."""
        file = self._values(len(self.trials))
        file.parent.mkdir(exist_ok=True)
        np.save(file, values)
        with self._file.open("a") as stream:
            stream.write(json.dumps(asdict(trial)) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        self.trials.append(trial)
        if self.best is trial:
            write_json(trial.record, self._settings, indent=2)

    def _values(self, number: int) -> Path:
        return self.folder / "values" / f"{number}.npy"

    @property
    def _settings(self) -> Path:
        return self.folder / "settings.json"

    @property
    def _file(self) -> Path:
        return self.folder / "trials.jsonl"

    def _read(self) -> list[Trial]:
        if not self._file.exists():
            return []
        raw = self._file.read_bytes()
        whole = raw[: raw.rfind(b"\n") + 1]  # drop a partly written last line
        if len(whole) < len(raw):
            self._file.write_bytes(whole)
        records = map(json.loads, whole.splitlines())
        # Trials of an earlier version have the parameters that a sampler drew.
        return [Trial(**{name: value for name, value in record.items() if name != "params"}) for record in records]


# --- rankers that tuning tries, in order: a fixed list, then variations of the best -----------------------------------


Stage = Literal["list", "follow-up"]

FAMILIES = ("single", "knn", "lambdamart", "kin")
"""Families tuned by default; "lambdamart" is one LightGBM model for all queries. Other rankers are tried untuned."""
TREES = ("lambdamart", "kin")


@dataclass(frozen=True)
class _Proposal:
    """A ranker to try."""

    family: str
    """One of `FAMILIES`."""
    ranker: Ranker
    """The unfitted ranker."""
    stage: Stage = "list"
    """Where the proposal comes from."""
    sweep: bool = False
    """Whether to try all values of k and prior strength, or all numbers of trees, in one pass."""

    @property
    def key(self) -> str:
        """Text that identifies the proposal."""
        return json.dumps([self.family, settings_of(self.ranker), self.sweep], sort_keys=True)


def available_families(queries: QuerySet) -> list[str]:
    """Return the families that can be fitted with the installed packages and to these grades."""
    return [family for family in FAMILIES if family not in TREES or not missing_trees(queries)]


def listed_proposals(
    queries: QuerySet, families: Sequence[str], *, reference: str | int | None, group: str | None, missing: Missing
) -> Iterator[_Proposal]:
    """Yield the fixed list, cheap and promising rankers first.

    Parameters
    ----------
    queries
        Training queries; they determine which descriptions are possible.
    families
        Families of `FAMILIES` to try.
    reference, group, missing
        As in `kinrank.study.tuning.Plan`.
    """
    for family in families:
        if family not in FAMILIES and family not in RANKERS:
            choices = dict.fromkeys((*available_families(queries), *RANKERS))
            raise ParameterError(f"unknown family {family!r}: choose one of {', '.join(choices)}")
    linear: dict[str, Any] = {"missing": missing}
    if "single" in families:
        for penalty in (0.01, 0.001, 0.1):
            yield _Proposal("single", SingleRanker(RankRLS(penalty=penalty), **linear))
    if "knn" in families:
        for blocks, components in descriptions(queries):
            describer = Describer(blocks, reference=reference, n_components=components)
            yield _Proposal("knn", KnnRanker(describe=describer, **linear), sweep=True)
    if "kin" in families:
        for bag in (None, LambdaMART(MOST_TREES, 31, 0.05, params={"feature_fraction": 0.5})):
            yield _Proposal("kin", KinRanker(trees=bag, reference=reference, group_column=group, **linear))
    if "lambdamart" in families:
        for leaves, least in SHAPES:  # as the LightGBM of a comparison tries them
            trees = LambdaMART(MOST_TREES, leaves, 0.05, least, n_threads=1)
            yield _Proposal("lambdamart", SingleRanker(trees), sweep=True)
    for family in families:
        if family not in FAMILIES:
            yield _Proposal(family, _with_defaults(family, reference=reference, missing=missing))


def _with_defaults(family: str, **shared: Any) -> Ranker:
    """Return a registered ranker with its defaults and the shared parameters that it has."""
    ranker: Ranker = RANKERS[family]()
    known = ranker.get_params(deep=False)
    ranker.set_params(**{name: value for name, value in shared.items() if name in known and value is not None})
    return ranker


def descriptions(queries: QuerySet) -> Iterator[tuple[dict[str, float] | str, int | None]]:
    """Yield blocks and number of components of the descriptions that are possible for the queries."""
    if has_text(queries):
        yield "summaries+text", None
        yield {"summaries": 1.0, "text": 4.0}, None
        yield "summaries+text", 46
        yield "text", None
    yield "summaries", None
    yield "mean", None


def without_local_models(best: KinRanker) -> _Proposal:
    """Return the best listed KinRanker without weights per query, to show what they add."""
    return _Proposal("kin", KinRanker(**{**best.get_params(deep=False), "local": False}), "follow-up")


def follow_up_proposals(best: KnnRanker) -> Iterator[_Proposal]:
    """Yield variations of the best listed KNN ranker: other penalties, neighbors that count alike, more of them."""
    for penalty in (0.003, 0.03):
        yield _Proposal("knn", _vary(best, learner=RankRLS(penalty=penalty)), "follow-up", sweep=True)
    yield _Proposal("knn", _vary(best, neighbor_weights="uniform"), "follow-up", sweep=True)
    yield _Proposal("knn", _vary(best, n_neighbors=2 * best.k), "follow-up")


def _vary(ranker: KnnRanker, **changes: Any) -> KnnRanker:
    return KnnRanker(**{**ranker.get_params(deep=False), **changes})


# --- choose a ranker, description, k and prior on the training queries, within a budget; resumable --------------------


Folds = list[tuple[QuerySet, QuerySet]]


@dataclass(frozen=True)
class Plan:
    """What to try, for how long, and how to measure it."""

    families: Sequence[str] | None = None
    """Families of `kinrank.study.tuning.FAMILIES` to try; by default all that can be fitted."""
    n_trials: int = 25
    """Maximum number of trials, including earlier runs."""
    seconds: float | None = None
    """Seconds after which no new trial is started."""
    folds: int = 5
    """Number of cross-validation folds, without validation queries."""
    group: str | None = None
    """Query column whose values are never split across folds."""
    reference: str | int | None = None
    """Feature whose top proposals describe a query."""
    missing: Missing = "mean"
    """How to handle missing features; see `kinrank.SingleRanker`."""
    measure: Measure = NDCG @ 10
    """Measure to maximize."""
    leaks: OnLeak = "refuse"
    """What to do with validation queries seen in training: raise, drop them, or keep them."""
    seed: int = 0
    """Seed for the folds."""

    def study(self, queries: QuerySet, test: QuerySet | None = None) -> Study:
        """Split the queries, and check them for leaks."""
        return Study.split(
            queries, test, folds=self.folds, group=self.group, measures=[self.measure], leaks=self.leaks, seed=self.seed
        )


@dataclass(frozen=True, eq=False)
class Tuning:
    """Result of `tune`."""

    trials: tuple[Trial, ...]
    """All trials, in order."""
    best: Trial
    stopped: str
    """Why tuning stopped."""
    answer: Answer | None = None
    """What the best trial of each rung of `kinrank.study.ladder` says, on the queries they were chosen by; None if no
    ranker with a model per query was tried, or none with one model for all.
    """

    @property
    def best_by_rung(self) -> dict[str, Trial]:
        """The best trial of each rung of the ladder."""
        return best_by_rung(self.trials)


def best_by_rung(trials: Sequence[Trial]) -> dict[str, Trial]:
    """Return the best trial of each rung of the ladder.

    That of "without" is the best of "kin" without weights per query, so that nothing else differs.
    """
    best: dict[str, Trial] = {}
    for trial in trials:
        rung = rung_of(trial.make())
        if rung is not None and rung != "without" and (rung not in best or trial.quality > best[rung].quality):
            best[rung] = trial
    if "kin" in best:
        lacking = without_local_models(cast(KinRanker, best["kin"].make())).key
        found = next((trial for trial in trials if trial.key == lacking), None)
        if found is not None:
            best["without"] = found
    return best


def tune(
    queries: QuerySet,
    folder: str | Path,
    plan: Plan | None = None,
    *,
    validation: QuerySet | None = None,
    on_trial: Callable[[Trial], None] = lambda _: None,
) -> Tuning:
    """Try rankers on the training queries, or resume an interrupted study.

    Parameters
    ----------
    queries
        Judged training queries, without the test queries.
    folder
        Folder for the trials and the best settings.
    plan
        See `Plan`.
    validation
        Judged validation queries; by default folds of `queries`.
    on_trial
        Called with each new trial.

    Examples
    --------
    >>> import tempfile
    >>> from kinrank.datasets import make_two_camps
    >>> camps = make_two_camps(n_queries=60, seed=0)
    >>> tuned = tune(camps, tempfile.mkdtemp(), Plan(families=["single", "knn"], n_trials=5))
    >>> tuned.best.family, tuned.best.quality
    ('knn', 1.0)
    """
    plan = plan or Plan()
    if plan.n_trials < 1 or (plan.seconds is not None and plan.seconds <= 0):
        raise ParameterError(
            f"n_trials must be at least 1 and seconds positive, got {plan.n_trials} and {plan.seconds}"
        )
    study = plan.study(queries, validation)
    folds: Folds = [(fold.train, fold.test) for fold in study.folds]
    protocol = {
        "data": queries.fingerprint()[:16],
        "validation": f"{plan.folds} folds by {plan.group or 'query'}"
        if validation is None
        else validation.fingerprint()[:16],
        **({} if plan.leaks == "refuse" else {"leaks": plan.leaks}),
        "measure": repr(plan.measure),
        "seed": plan.seed,
        "reference": plan.reference,
        "missing": plan.missing,
    }
    log = _TrialLog(folder, protocol)
    start = time.perf_counter()
    stopped = f"reached the limit of {plan.n_trials} trials"
    proposals = _proposals(queries, plan, log)
    while len(log.trials) < plan.n_trials:
        if plan.seconds is not None and log.trials and time.perf_counter() - start > plan.seconds:
            stopped = f"reached the limit of {plan.seconds:g} seconds"
            break
        try:
            proposal = next(proposals)
        except StopIteration:
            stopped = "no settings left to try"
            break
        trial, values = _try(proposal, folds, plan.measure)
        log.add(trial, values)
        on_trial(trial)
    best = log.best
    if best is None:
        raise ParameterError("no ranker was tried: pass at least one family that can be fitted")
    rungs = {rung: log.values(trial) for rung, trial in best_by_rung(log.trials).items()}
    note = "" if plan.families else missing_trees(queries)
    return Tuning(tuple(log.trials), best, stopped, answer(rungs, groups=study.groups_by_fold, note=note))


def _proposals(queries: QuerySet, plan: Plan, log: _TrialLog) -> Iterator[_Proposal]:
    """Yield rankers that are not in the log: the list, then variations of its best."""
    families = list(plan.families or available_families(queries))
    shared: dict[str, Any] = {"reference": plan.reference, "group": plan.group, "missing": plan.missing}
    yield from _new(listed_proposals(queries, families, **shared), log)
    if "kin" in families:
        yield from _new(iter([without_local_models(_best_listed(log, "kin"))]), log)
    if "knn" in families:
        yield from _new(follow_up_proposals(_best_listed(log, "knn")), log)


def _best_listed(log: _TrialLog, family: str) -> Any:
    """Return the unfitted ranker of the best trial of the list; the family tells its class."""
    listed = [trial for trial in log.trials if trial.family == family and trial.stage == "list"]
    return max(listed, key=lambda trial: trial.quality).make()


def _new(proposals: Iterator[_Proposal], log: _TrialLog) -> Iterator[_Proposal]:
    done = {trial.key for trial in log.trials}
    return (proposal for proposal in proposals if proposal.key not in done)


def _try(proposal: _Proposal, folds: Folds, measure: Measure) -> tuple[Trial, Float64]:
    """Return the trial, and the measure of every query."""
    start = time.perf_counter()
    ranker = clone(proposal.ranker)
    if proposal.sweep and proposal.family == "lambdamart":
        trees: LambdaMART = ranker.learner
        ranker.set_params(learner=clone(trees).set_params(n_trees=sweep_trees(trees, folds)))
    elif proposal.sweep:
        knn: KnnRanker = ranker
        ranker = sweep_neighbors(knn, folds, measure).apply(knn)
    measured = map_ordered(current_executor(Serial()), _OnFold(ranker, measure), list(folds))
    values = np.concatenate(list(measured))
    seconds = time.perf_counter() - start
    identity = proposal.key, proposal.family, proposal.stage, settings_of(ranker)
    return Trial(*identity, mean_of(values), seconds), values


@dataclass(frozen=True, eq=False)
class _OnFold:
    """Evaluates a ranker on one fold, possibly in another process."""

    ranker: Any
    measure: Measure

    def __call__(self, fold: tuple[QuerySet, QuerySet]) -> Float64:
        train, held_out = fold
        return per_query_values(clone(self.ranker).fit(train), held_out, self.measure)


def per_query_values(ranker: Any, queries: QuerySet, measure: Measure) -> Float64:
    """Return the measure of each query for a fitted ranker."""
    scores = ranker.predict(queries)
    return measure.per_query(scores, queries.grades, queries.offsets, queries.doc_id, queries.sample_weight)
