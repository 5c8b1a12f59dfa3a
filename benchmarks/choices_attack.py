"""Clients conspire to lift a document: the rank that it reaches with and without the defenses.

10,000 simulated clients use the movie search that comes with kinrank. A *head* query is asked by 1,000 of them in a
week, a *tail* query by 5, once each; they examine rank k with probability 1/k and click by the grade. 1, 3, 10 or 100
others (one percent) search five times a day and click one document each time. *Clicks* are made on the lists that the
service shows, which are ranked by what was counted until the day before: the document is the last of the worst among
the first ten. *Forged lists* are sent by conspirators who hold a key for events: they say that the last candidate was
shown at rank 10, and chosen. Lists are counted as the service counts them, with more and more of the defenses: one vote
per client, document and day; at least three clients; examination, by which a click where few look counts more; three
clients who chose the document, without whom nothing lifts it; and, *signed*, lists that the service has not handed out
count as those of one client for each key and address. Conspirators share one address, or have one each (*own
addresses*). Lists that are handed out name the clients that the web tier names: a click on them is one of its client.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pyarrow.compute as pc

from benchmarks.choices_traffic import read_clicks
from benchmarks.common import log_progress
from kinrank import KinRanker, QuerySet
from kinrank.data.hashes import hash_texts, query_keys
from kinrank.datasets import load_movies, simulate_clicks
from kinrank.memory._votes import MAX_RANK, RankCurve, ShownList, Votes, count_votes
from kinrank.memory.evidence import Evidence

OPTIONS = {"queries": ("8", "2", "20")}
CLIENTS, DAYS, SEARCHES, SHOWN = 10_000, 7, 5, 10
CONSPIRATORS = (1, 3, 10, 100)
ASKED_BY = {"head": 1_000, "tail": 5}
ATTACKS = ("clicks", "forged lists")
EXAMINED = RankCurve.of({})
EVENLY = RankCurve([1.0] * MAX_RANK, [0.0] * MAX_RANK)


@dataclass(frozen=True)
class Defenses:
    """How votes are counted."""

    one_vote: bool = True
    min_clients: int = 3
    min_choosers: int = 3
    curve: RankCurve = EXAMINED
    addresses: float = math.inf
    """How many addresses forged lists come from, each of which is one client; if unsigned, each name is one."""


DEFENSES = {
    "none": Defenses(one_vote=False, min_clients=1, min_choosers=0, curve=EVENLY),
    "one vote": Defenses(min_clients=1, min_choosers=0, curve=EVENLY),
    "one vote, three clients": Defenses(min_choosers=0, curve=EVENLY),
    "also examination": Defenses(min_choosers=0),
    "unsigned clients": Defenses(),
    "signed, one address": Defenses(addresses=1),
    "signed, own addresses": Defenses(addresses=1_000),
}


def run(queries: str = "8") -> dict[str, Any]:
    """Attack some queries, and return the median rank of the documents before and after."""
    movies = load_movies()
    ranker = KinRanker(memory=False).fit(movies[:150])
    asked = movies[150:]
    log = simulate_clicks(asked, ranker.predict(asked), n_lists=60)
    evidence = read_clicks(log.filter(pc.less_equal(log["rank"], SHOWN)), "swaps")[2]
    choices = KinRanker(memory=False, evidence=evidence).fit(movies[:150])
    log_progress("; ".join(choices.remarks()))
    some = [query for query in asked if query.n_rows > 2 * SHOWN][: int(queries)]
    figures: dict[str, Any] = {"clients": CLIENTS, "queries": len(some)}
    for attack, kind, size in product(ATTACKS, ASKED_BY, CONSPIRATORS):
        row = {}
        for name, defenses in DEFENSES.items():
            ranks = [attacked(choices, query, attack, ASKED_BY[kind], size, defenses) for query in some]
            row["before"], row[name] = (float(np.median(each)) for each in zip(*ranks, strict=True))
        figures[f"{attack}, {kind}, {size}"] = row
        log_progress(f"{attack}, {kind}, {size}: {row}")
    return figures


def attacked(
    choices: KinRanker, query: QuerySet, attack: str, n_honest: int, size: int, defenses: Defenses
) -> tuple[int, int]:
    """Return the rank of a document before and after a week."""
    rng = np.random.default_rng(0)
    attraction = 0.1 + 0.6 * query.grades.astype(np.float64) / max(float(query.grades.max()), 1.0)
    order = _order(choices, query, {}, defenses)
    ids = query.doc_id.tolist()
    on_page = attack == "clicks"
    first = order[1:SHOWN]
    worst = first[query.grades[first] == query.grades[first].min()]
    target = int(worst[-1]) if on_page else int(order[-1])
    before = int(np.flatnonzero(order == target)[0]) + 1
    days = rng.integers(0, DAYS, n_honest)
    votes: dict[tuple[int, str, int], Votes] = {}
    for day in range(DAYS):
        lists: list[ShownList] = []
        shown = order[:SHOWN]
        documents = [ids[row] for row in shown]
        for client in np.flatnonzero(days == day).tolist():
            looked = rng.random(SHOWN) < 1 / np.arange(1, SHOWN + 1)
            clicked = looked & (rng.random(SHOWN) < attraction[shown])
            chosen = {documents[place]: 1.0 for place in np.flatnonzero(clicked).tolist()}
            lists.append(ShownList(0, day, client, documents, chosen))
        if not on_page:
            others = [document for document in documents if document != ids[target]][: SHOWN - 1]
            documents = [*others, ids[target]]
        forged = {ids[target]: 1.0} if ids[target] in documents else {}
        callers = size if on_page else int(min(defenses.addresses, size))
        conspirators = [CLIENTS + number % callers for number in range(size)]
        lists += [ShownList(0, day, client, documents, forged) for client in conspirators for _ in range(SEARCHES)]
        if not defenses.one_vote:
            lists = [shown._replace(client=number) for number, shown in enumerate(lists)]
        votes |= count_votes(lists, defenses.curve)
        order = _order(choices, query, votes, defenses)
    return before, int(np.flatnonzero(order == target)[0]) + 1


def _order(
    choices: KinRanker, query: QuerySet, votes: Mapping[tuple[int, str, int], Votes], defenses: Defenses
) -> np.ndarray:
    """Return the rows of a query in the order by what was counted."""
    crowds: dict[str, set[int]] = {}
    choosers: dict[str, set[int]] = {}
    for (_, document, _), cell in votes.items():
        crowds.setdefault(document, set()).update(cell.clients)
        choosers.setdefault(document, set()).update(cell.choosers)
    cells = [
        (document, day, cell.looks, cell.choices, len(choosers[document]) < defenses.min_choosers)
        for (_, document, day), cell in votes.items()
        if len(crowds[document]) >= defenses.min_clients
    ]
    assert choices.chosen_ is not None
    other = choices.copy()
    other.chosen_ = replace(choices.chosen_, evidence=None)
    if cells:
        document, day, looks, chosen, few = zip(*cells, strict=True)
        key = query_keys(query.query_columns["text"]).repeat(len(cells))
        evidence = Evidence.from_hashes(key, hash_texts(np.array(document)), looks, chosen, day, few)
        other.chosen_ = replace(choices.chosen_, evidence=evidence)
    return np.argsort(-other.predict(query), kind="stable")
