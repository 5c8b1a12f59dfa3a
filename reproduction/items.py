"""The tables, figures and algorithms of the papers: what measures each of them, and the verdict on it.

An *item* is a table, a figure or a section of a paper as one experiment measures it. Items follow from the claims, so a
new claim needs no entry here. Each *algorithm* names its equation, its class and the claims about it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kinrank.errors import ParameterError
from reproduction import PAPERS
from reproduction.catalog import EXPERIMENTS, experiments_of
from reproduction.claims import Claim, expectations, verdict_on
from reproduction.experiment import Experiment
from reproduction.results import Results

_NUMBERED = re.compile(r"(Figure|Table|Section|Theorem|Definition)s? (\d[\d.]*)(?: and (\d+))?")
_SHORT = {"Figure": "fig", "Table": "table", "Section": "sec", "Theorem": "theorem", "Definition": "def"}


@dataclass(frozen=True)
class Item:
    """A table, a figure or a section of a paper, as one experiment measures it.

    Attributes
    ----------
    paper : str
        The paper, a key of `reproduction.PAPERS`.
    label : str
        What it is called in the paper, as in "Figure 7"; or what it is about, if it is not in the paper.
    experiment : str
        The experiment that measures it.
    name : str
        What runs the experiment on the command line: ``geng:fig7``, or the name of the experiment if another one comes
        first for this figure.
    claims : tuple of Claim
        What the paper claims there.
    """

    paper: str
    label: str
    experiment: str
    name: str
    claims: tuple[Claim, ...]

    def minutes(self, results: Results) -> float:
        """Return the CPU minutes that the experiment took in a run."""
        return results.seconds[self.experiment]["cpu"] / 60

    def verdict(self, results: Results) -> str:
        """Return the verdict on its claims in a run, with counts."""
        return verdict_on(self.paper, self.claims, results.figures)

    @property
    def collections(self) -> list[str]:
        """The collections that the experiment reads; empty if it generates its data."""
        return collections_of([EXPERIMENTS[self.experiment]])


def collections_of(experiments: list[Experiment]) -> list[str]:
    """Return the folders of the collections that experiments read.

    Examples
    --------
    >>> collections_of([EXPERIMENTS["knn-msrd"]]), collections_of([EXPERIMENTS["intents"]])
    (['text/msrd'], [])
    """
    files = {name for experiment in experiments for task in experiment.tasks.values() for name in task.needs}
    return sorted({name.rpartition("/")[0] for name in files})


def items() -> list[Item]:
    """Return the items of all papers, in the order of the papers, experiments and claims.

    Examples
    --------
    >>> [item.name for item in items() if item.label == "Figure 7"]
    ['geng:fig7', 'knn-letor', 'knn-msrd', 'query-class']
    """
    found: dict[tuple[str, str, str], list[Claim]] = {}
    for paper in PAPERS:
        order = [each.name for each in experiments_of(paper)]
        for claim in sorted(expectations(paper).claims, key=lambda claim: order.index(claim.experiment)):
            for label in _labels(claim.source):
                found.setdefault((paper, label, claim.experiment), []).append(claim)
    taken: set[str] = set()
    listed = []
    for (paper, label, experiment), claims in found.items():
        name = f"{paper}:{_short(label)}"
        if not _NUMBERED.match(label) or name in taken:
            name = experiment
        taken.add(name)
        listed.append(Item(paper, label, experiment, name, tuple(claims)))
    return listed


def experiments_at(name: str) -> list[Experiment]:
    """Return the experiments of a paper, of all, of one name, or the one that measures a figure, as in ``geng:fig7``.

    Examples
    --------
    >>> [experiment.name for experiment in experiments_at("geng:fig7")]
    ['intents']
    >>> experiments_at("geng:fig12")
    Traceback (most recent call last):
    ...
    kinrank.errors.ParameterError: geng has no 'fig12' that is measured: choose one of 'def1', 'fig1', ...
    """
    paper, colon, wanted = name.partition(":")
    if not colon or paper not in PAPERS:
        return experiments_of(name)
    known = {item.name.partition(":")[2]: item.experiment for item in items() if item.name.startswith(f"{paper}:")}
    if wanted not in known:
        raise ParameterError(
            f"{paper} has no {wanted!r} that is measured: choose one of {', '.join(map(repr, sorted(known)))}, or see "
            "python -m reproduction --list"
        )
    return [EXPERIMENTS[known[wanted]]]


def _labels(source: str) -> list[str]:
    """Return what a claim's source names: "Tables 2 and 3, MQ2007" names two tables."""
    match = _NUMBERED.match(source)
    if not match:
        return [source.partition(",")[0]]
    kind, *numbers = match.groups()
    return [f"{kind} {number.rstrip('.')}" for number in numbers if number]


def _short(label: str) -> str:
    kind, _, number = label.partition(" ")
    return f"{_SHORT.get(kind, kind)}{number}"


@dataclass(frozen=True)
class Algorithm:
    """An algorithm or a theorem of a paper.

    Attributes
    ----------
    paper : str
        The paper, a key of `reproduction.PAPERS`.
    name : str
        Its name in the paper.
    equation : str
        Where the paper defines it.
    code : str
        What implements it: an expression with the class, or the module and the function.
    item : str
        The name of the item that measures it.
    about : str
        Regular expression at the start of the statements about it, or the name of the experiment with only such claims.
    """

    paper: str
    name: str
    equation: str
    code: str
    item: str
    about: str

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The claims about it."""
        return tuple(
            claim
            for claim in expectations(self.paper).claims
            if claim.experiment == self.about or re.match(self.about, claim.statement)
        )

    def verdict(self, results: Results) -> str:
        """Return the verdict on the claims about it in a run, with counts."""
        return verdict_on(self.paper, self.claims, results.figures)


ALGORITHMS = (
    Algorithm("geng", "KNN Online", "3.2, Figure 3", "KnnRanker.as_published()", "geng:fig7", "KNN Online "),
    Algorithm(
        "geng",
        "KNN Offline-1",
        "Eq. 1, Figure 5",
        'KnnRanker.as_published(mode="offline-1")',
        "geng:fig7",
        "KNN Offline-1",
    ),
    Algorithm(
        "geng",
        "KNN Offline-2",
        "3.3, Figure 6",
        'KnnRanker.as_published(mode="offline-2")',
        "geng:fig7",
        "KNN Offline-2",
    ),
    Algorithm("geng", "QC", "4.2.1", 'QueryClassRanker.as_published("type")', "geng:fig7", "QC "),
    Algorithm(
        "geng", "stability bound", "Theorem 1", "reproduction.bounds.loss_difference_bound", "geng:theorem1", "bound"
    ),
    Algorithm("local-models", "Naive", "2.1", 'ClusterRanker.as_published("naive")', "local-models:table2", "Naive"),
    Algorithm(
        "local-models",
        "SelectRanker",
        "Eqs. 1, 2",
        'ClusterRanker.as_published("select")',
        "local-models:table2",
        "SelectRanker",
    ),
    Algorithm(
        "local-models",
        "Transform",
        "Eq. 1",
        'ClusterRanker.as_published("transform")',
        "local-models:table2",
        "Transform",
    ),
    Algorithm(
        "atvt",
        "aTVT, L2, the paper's procedure",
        "3.2.1, 4.3",
        "ATVTRanker.as_published()",
        "atvt:table2",
        "the (gain of the )?paper's (procedure|best)",
    ),
    Algorithm("atvt", "aTVT, L2, the objective", "Eq. 3", "ATVTRanker()", "atvt:table2", "(the gain of )?our reading"),
    Algorithm("atvt", "aTVT, L1", "3.2.2", "ATVTRanker.as_published(p=1)", "atvt:sec4.4", "p = 1"),
    Algorithm("atvt", "convergence", "Theorem 2", 'ATVTRanker("kernel-ridge")', "atvt:theorem2", "atvt-convergence"),
    Algorithm(
        "atvt",
        "classes, monotone g_q (proposed)",
        "3, 5",
        "reproduction.experiments.atvt_classes",
        "atvt-classes",
        "proposed",
    ),
    Algorithm("sser", "SER", "Eqs. 5, 6", "EnsembleRanker.as_published(gamma=0)", "sser:fig1", "SER "),
    Algorithm("sser", "SSER", "Eqs. 9, 10", "EnsembleRanker.as_published()", "ensemble-tuned", "SSER (is|gains)"),
)
"""The algorithms, in the order of the papers."""


def rows(results: Results) -> Iterator[tuple[str, str, str, str, str, str]]:
    """Yield the rows of ``--list``: paper, table or figure, what to run, data, minutes and verdict."""
    for item in items():
        data = ", ".join(item.collections) or "generated"
        yield item.paper, item.label, item.name, data, f"{item.minutes(results):.1f}", item.verdict(results)
