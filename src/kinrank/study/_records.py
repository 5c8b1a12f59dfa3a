"""Results of studies as JSON values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kinrank.measure import PairedComparison
from kinrank.rankers._local.choose import NeighborChoice
from kinrank.study._answer import Answer, Claim, NearAndFar, TrafficAnswer, TrafficPart
from kinrank.study._entrants import unjudged_in_top
from kinrank.study.comparison import Comparison, Difference, Entrant
from kinrank.study.headroom import Headroom


def answer_record(found: Answer) -> dict[str, Any]:
    """Return an `Answer` as JSON values."""
    return {
        "verdict": found.verdict,
        "own_models_verdict": found.own_verdict,
        "text": found.text,
        "means": {rung: number(mean) for rung, mean in found.means.items()},
        "gain": _claim(found.gain),
        "own_models": None if found.own is None else _claim(found.own),
        "memory": None if found.memory is None else _claim(found.memory),
        "choices": None if found.choices is None else _traffic(found.choices),
        "near_and_far": _near_and_far(found.near_and_far),
    }


def _near_and_far(found: Sequence[NearAndFar]) -> list[dict[str, Any]]:
    return [
        {
            "ranking": each.name,
            "against": each.against,
            "similarity": each.similarity,
            **{
                side: {"queries": n_queries, "gain": None if paired is None else _paired(paired)}
                for side, n_queries, paired in (("near", each.n_near, each.near), ("far", each.n_far, each.far))
            },
        }
        for each in found
    ]


def _traffic(found: TrafficAnswer) -> dict[str, Any]:
    return {
        "since": found.since,
        "share_of_all_looks": found.covered,
        "gain": _claim(found.claim),
        "parts": {part.name: _traffic_part(part) for part in found.parts},
        "over_engine": None if found.today is None else _traffic_part(found.today),
    }


def _traffic_part(part: TrafficPart) -> dict[str, Any]:
    return {
        "queries": part.n_queries,
        "share_of_traffic": part.share,
        "mean": number(part.mean),
        "without_choices": number(part.without),
        "gain": None if part.paired is None else _paired(part.paired),
    }


def headroom_record(found: Headroom) -> dict[str, Any]:
    """Return a `Headroom` as JSON values."""
    return {
        "measure": repr(found.measure),
        "queries": len(found.comparison.queries),
        "queries_in_all": found.n_queries,
        "folds": len(found.choices),
        "folds_in_all": found.n_folds,
        "means": found.means,
        "answer": answer_record(found.answer),
        "text": found.answer.text,
        "differences": [_difference(each) for each in found.comparison.differences],
        "gain_without_near_duplicates": None if found.clean is None else _paired(found.clean),
        "seen_in_training": sum(len(report.seen_queries) for report in found.leaks),
        "near_duplicates": sum(len(report.near_queries) for report in found.leaks),
        "unjudged_top_10": found.unjudged,
        "chosen": [_choice(each) for each in found.choices],
        "cost": {each.name: _cost(each) for each in found.comparison.entrants},
    }


def comparison_record(comparison: Comparison, found: Answer | None = None) -> dict[str, Any]:
    """Return a `Comparison`, and what it says, as JSON values, without scores and values per query."""
    return {
        "queries": len(comparison.queries),
        "documents": comparison.queries.n_rows,
        "measures": [repr(measure) for measure in comparison.measures],
        "baseline": comparison.baseline.name,
        "entrants": [_entrant(entrant, comparison) for entrant in comparison.entrants],
        "differences": [_difference(each) for each in comparison.differences],
        "near_and_far": _near_and_far(comparison.near_and_far),
        "answer": None if found is None else answer_record(found),
    }


def number(value: float) -> float | None:
    """Return the value, or None for NaN, which JSON does not have."""
    return None if math.isnan(value) else value


def _claim(claim: Claim) -> dict[str, Any]:
    return {
        "ranking": claim.name,
        "against": claim.against,
        "verdict": claim.verdict,
        **_paired(claim.paired),
        "p_holm": claim.paired.p if claim.p_holm is None else claim.p_holm,
        "claims": claim.n_claims,
    }


def _difference(difference: Difference) -> dict[str, Any]:
    names = {"entrant": difference.name, "against": difference.against, "measure": repr(difference.measure)}
    return names | _tested(difference)


def _entrant(entrant: Entrant, comparison: Comparison) -> dict[str, Any]:
    covered = entrant.coverage
    return {
        "entrant": entrant.name,
        "origin": entrant.origin,
        "settings": {name: _plain(value) for name, value in entrant.settings.items()},
        "means": {repr(measure): number(entrant.evaluation[measure]) for measure in comparison.measures},
        "cost": _cost(entrant),
        "unjudged_top_10": unjudged_in_top(comparison.queries, entrant.scores),
        "coverage": None
        if covered is None
        else {
            "absent_documents": covered.absent_documents,
            "absent_queries": covered.absent_queries,
            "unknown_documents": covered.unknown_documents,
            "unjudged_top_10": number(covered.unjudged_top),
        },
    }


def _tested(difference: Difference) -> dict[str, Any]:
    return {
        **_paired(difference.paired),
        "p_holm": difference.p_holm,
    }


def _choice(chosen: NeighborChoice) -> dict[str, Any]:
    return {"n_neighbors": chosen.n_neighbors, "prior_strength": chosen.prior_strength}


def _paired(paired: PairedComparison) -> dict[str, Any]:
    return {
        "difference": paired.mean_difference,
        "interval": list(paired.interval),
        "confidence": paired.confidence,
        "test": paired.test,
        "p": paired.p,
        "queries": paired.n,
        "wins": paired.wins,
        "ties": paired.ties,
        "losses": paired.losses,
    }


def _cost(entrant: Entrant) -> dict[str, Any]:
    queries = len(entrant.evaluation.qid)
    each = None if entrant.rank_seconds is None else 1000 * entrant.rank_seconds / queries
    return {"fit_seconds": entrant.fit_seconds, "rank_seconds": entrant.rank_seconds, "rank_ms_a_query": each}


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)
