"""Cells do not depend on how a log is ordered, cut or counted, to the last bit, and are what clients voted."""

from __future__ import annotations

from itertools import product

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinrank.clicks.counting import KEYS, UNIT, FirstPass, create_cells
from kinrank.clicks.examination import Examination
from kinrank.memory._votes import RankCurve, ShownList, count_votes

N_QUERIES, DAYS, DEPTH = 4, (20, 21, 22), 5
SLOPE, OFFSET = [1.0, 0.61, 0.37, 0.23, 0.0], [0.0, 0.013, 0.007, 0.011, 0.0]


def first_pass(*, cascade: bool = False, excluded: tuple[int, ...] = ()) -> FirstPass:
    model = "cascade" if cascade else "trust"
    slope, offset = np.array(SLOPE), np.array(OFFSET)
    curve = Examination(model, np.arange(1, DEPTH + 1), slope, offset, slope, slope, "")
    return FirstPass.of(curve, np.array(excluded, np.uint64))


def simulated(seed: int, n_lists: int = 60) -> list[ShownList]:
    rng = np.random.default_rng(seed)
    lists = []
    for _ in range(n_lists):
        documents = [str(each) for each in rng.permutation(8)[:DEPTH]]
        clicked = {each: float(rng.choice([0.3, 1.0])) for each in documents if rng.random() < 0.3}
        query, client = int(rng.integers(1, N_QUERIES + 1)), int(rng.integers(1, 9))
        lists.append(ShownList(query, int(rng.choice(DAYS)), client, documents, clicked))
    return lists


def impressions(lists: list[ShownList]) -> pa.Table:
    asked = [(shown.query, shown.day, shown.client) for shown in lists]
    rows = [
        {
            "list": number,
            "query": shown.query,
            "document": int(document),
            "client": shown.client,
            "day": shown.day,
            "rank": rank,
            "clicked": document in shown.clicked,
            "value": round(shown.clicked.get(document, 0.0) * UNIT),
            "alone": asked.count(asked[number]) == 1,
        }
        for number, shown in enumerate(lists)
        for rank, document in enumerate(shown.documents, start=1)
    ]
    types = {name: pa.uint64() for name in ("query", "document", "client")} | {"day": pa.int32()}
    found = pa.Table.from_pylist(rows)
    return found.cast(pa.schema([(field.name, types.get(field.name, field.type)) for field in found.schema]))


def counted(table: pa.Table, first: FirstPass, threads: int = 1, by_client: bool = True) -> list:
    with duckdb.connect() as database:
        database.execute(f"SET threads = {threads}")
        database.register("given", table)
        create_cells(database, "given", first, by_client=by_client)
        return database.execute(f"SELECT * FROM cells ORDER BY {KEYS}").fetchall()


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), cascade=st.booleans(), threads=st.integers(1, 4))
def test_neither_order_nor_threads_nor_partitions_change_a_bit(seed: int, cascade: bool, threads: int):
    table, first = impressions(simulated(seed)), first_pass(cascade=cascade)
    whole = counted(table, first)
    rng = np.random.default_rng(seed)
    assert counted(table.take(pa.array(rng.permutation(len(table)))), first, threads) == whole
    key = table["query"].to_numpy() % 2, table["day"].to_numpy()
    parts = [
        counted(table.filter(pa.array((key[0] == bucket) & (key[1] == day))), first, threads)
        for bucket, day in product((0, 1), DAYS)
    ]
    assert sorted((row for part in parts for row in part), key=lambda row: row[:3]) == whole


@pytest.mark.parametrize("cascade", [False, True])
def test_each_client_has_one_vote_on_a_document_a_day(cascade: bool):
    lists, first = simulated(1, 200), first_pass(cascade=cascade)
    votes = count_votes(lists, RankCurve(SLOPE, OFFSET, cascade))
    cells = {(query, str(document), day): rest for query, document, day, *rest in counted(impressions(lists), first)}
    assert cells.keys() == votes.keys()
    for key, (looks, choices) in cells.items():
        assert looks / UNIT == pytest.approx(votes[key].looks, abs=1e-6)
        assert choices / UNIT == pytest.approx(votes[key].choices, abs=1e-6)


def test_a_list_that_is_alone_spares_its_client_and_changes_nothing():
    table = impressions(simulated(2, 40))
    assert 0 < sum(table["alone"].to_pylist()) < len(table)
    every = table.set_column(table.schema.get_field_index("alone"), "alone", pa.array([False] * len(table)))
    assert counted(table, first_pass()) == counted(every, first_pass())


def test_impressions_without_clients_are_votes_of_their_own():
    lists = [ShownList(1, 20, 0, ["1"], {"1": 1.0}), ShownList(1, 20, 0, ["1"], {})]
    assert counted(impressions(lists), first_pass(), by_client=False) == [(1, 1, 20, 2 * UNIT, UNIT)]


def test_version_names_the_first_pass():
    first = first_pass(excluded=(5, 2))
    assert FirstPass.from_json(first.to_json()).version == first.version
    assert len({first.version, first_pass().version, first_pass(cascade=True).version}) == 3
