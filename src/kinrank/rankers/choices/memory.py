"""Documents that people chose for a query, whether or not an engine finds them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kinrank.data.hashes import IdHashes, hash_texts, keys_of
from kinrank.data.queryset import QuerySet
from kinrank.memory.evidence import Totals
from kinrank.rankers.choices.live import EvidencePart
from kinrank.rankers.choices.posterior import Posterior
from kinrank.rankers.choices.similar import SimilarQueries


def remembered_documents(
    query: QuerySet,
    most: int,
    parts: Sequence[EvidencePart],
    posterior: Posterior,
    similar: SimilarQueries | None,
) -> list[str]:
    """Return documents that people chose for a query, or for similar ones if these count, and that it does not have.

    Those that too few clients chose are not among them.

    Parameters
    ----------
    query
        One query with its text and the documents that are known already.
    most
        The number of documents to return at most: those with the highest rate of choices, if an average rate is
        expected of them.
    parts
        The evidence.
    posterior
        How much evidence counts.
    similar
        The evidence of similar queries; None if it does not count.
    """
    keys = keys_of(query)
    if keys is None or query.doc_id is None:
        return []
    found = [part.evidence.of_query(keys[0], **part.counted) for part in parts]
    own = [(documents, *totals) for documents, totals in found]
    few = [(documents, *totals.few) for documents, totals in found if totals.few is not None]
    kin = [] if similar is None else similar.documents(query, posterior.width)
    documents = np.unique(np.concatenate([each[0] for each in [*own, *kin]])) if own or kin else np.empty(0, np.uint64)
    documents = np.setdiff1d(documents, hash_texts(query.doc_id))
    doubted, beyond = _sums(documents, few), _sums(documents, kin)
    looked = _sums(documents, own).held_back(doubted)
    chosen = np.flatnonzero(looked.choices - doubted.choices + posterior.discount * beyond.choices > 0)
    mean = posterior.mean(np.full(len(documents), posterior.rate), looked, beyond)
    best = documents[chosen[np.argsort(-mean[chosen], kind="stable")]]
    named: dict[int, str] = {}
    for part in parts:
        ids = part.evidence.ids.find_hashes(best)
        named |= {place: name for place, name in enumerate(ids) if name is not None}
    return [named[place] for place in sorted(named)][:most]


def _sums(documents: IdHashes, cells: Sequence[tuple[IdHashes, np.ndarray, np.ndarray]]) -> Totals:
    """Return the sums of looks and choices of documents, which are sorted."""
    totals = np.zeros((2, len(documents)))
    for hashes, *values in cells:
        places = np.searchsorted(documents, hashes)
        known = places < len(documents)
        known[known] = documents[places[known]] == hashes[known]
        for total, value in zip(totals, values, strict=True):
            np.add.at(total, places[known], value[known])
    return Totals(*totals)
