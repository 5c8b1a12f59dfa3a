"""All experiments. Adding one takes a module in `experiments` and a line here."""

from __future__ import annotations

from kinrank.errors import ParameterError
from reproduction import PAPERS
from reproduction.experiment import Experiment
from reproduction.experiments import (
    atvt,
    atvt_classes,
    atvt_convergence,
    bound,
    cluster_aggregation,
    cluster_methods,
    cluster_oracles,
    cluster_time,
    ensemble,
    ensemble_time,
    ensemble_tuned,
    intent_curves,
    intents,
    knn_cost,
    knn_letor,
    knn_letor_curves,
    knn_msrd,
    letor_baselines,
    local_learner,
    map_atvt,
    map_clusters,
    map_ensemble,
    map_local,
    normalized_queries,
    query_class,
    query_map,
    relevant_counts,
)

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (
        query_map,
        intents,
        intent_curves,
        bound,
        local_learner,
        knn_letor,
        knn_letor_curves,
        knn_msrd,
        normalized_queries,
        query_class,
        map_local,
        knn_cost,
        letor_baselines,
        cluster_methods,
        cluster_aggregation,
        cluster_oracles,
        cluster_time,
        map_clusters,
        relevant_counts,
        atvt,
        atvt_classes,
        atvt_convergence,
        map_atvt,
        ensemble,
        ensemble_time,
        ensemble_tuned,
        map_ensemble,
    )
}


def experiments_of(name: str) -> list[Experiment]:
    """Return the experiments of a paper, the experiment of that name, or all for ``"all"``.

    Examples
    --------
    >>> [experiment.name for experiment in experiments_of("sser")]
    ['ensemble', 'ensemble-time', 'ensemble-tuned', 'map-ensemble']
    >>> [experiment.name for experiment in experiments_of("ensemble")]
    ['ensemble']
    >>> experiments_of("knn")
    Traceback (most recent call last):
    ...
    kinrank.errors.ParameterError: unknown paper 'knn': choose one of 'geng', ... or an experiment: 'query-map', ...
    """
    if name not in (*PAPERS, *EXPERIMENTS, "all"):
        papers, experiments = (", ".join(map(repr, names)) for names in ((*PAPERS, "all"), EXPERIMENTS))
        raise ParameterError(f"unknown paper {name!r}: choose one of {papers} or an experiment: {experiments}")
    return [each for each in EXPERIMENTS.values() if name in (each.name, each.paper, "all")]
