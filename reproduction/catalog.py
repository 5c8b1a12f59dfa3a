"""All experiments, by paper. A new one costs a module in `parts` and a line here."""

from __future__ import annotations

from kinrank.errors import ParameterError
from reproduction import PAPERS
from reproduction.part import Part
from reproduction.parts import (
    atvt,
    bound,
    cluster_methods,
    cluster_oracles,
    ensemble,
    ensemble_time,
    intent_curves,
    intents,
    knn_letor,
    knn_msrd,
    letor_baselines,
    query_class,
    query_map,
    relevant_counts,
)

PARTS: dict[str, Part] = {
    module.PART.name: module.PART
    for module in (
        query_map,
        intents,
        intent_curves,
        bound,
        knn_letor,
        knn_msrd,
        query_class,
        letor_baselines,
        cluster_methods,
        cluster_oracles,
        relevant_counts,
        atvt,
        ensemble,
        ensemble_time,
    )
}


def parts_of(paper: str) -> list[Part]:
    """The experiments of a paper, or of ``"all"``.

    Examples
    --------
    >>> [part.name for part in parts_of("sser")]
    ['ensemble', 'ensemble-time']
    >>> parts_of("knn")
    Traceback (most recent call last):
    ...
    kinrank.errors.ParameterError: unknown paper 'knn': choose one of 'geng', 'local-models', 'atvt', 'sser', 'all'
    """
    if paper not in (*PAPERS, "all"):
        raise ParameterError(f"unknown paper {paper!r}: choose one of {', '.join(map(repr, (*PAPERS, 'all')))}")
    return [part for part in PARTS.values() if paper in (part.paper, "all")]
