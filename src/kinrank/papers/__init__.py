"""Rankers of the papers, one file per method: aTVT, query classes, cluster models, ensembles."""
