"""Per-query weights in a running PostgreSQL with pgvector give the order of our scores."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray

from kinrank.data.normalization import normalize
from kinrank.engines.targets import TARGETS

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]
PORT = 15442 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
DOCUMENTS, WORDS = 80, ("heat", "alien", "night", "rain", "city")
LEXICAL = (
    "SELECT id, ts_rank_cd(words, plainto_tsquery('simple', %(text)s)) AS score FROM movies "
    "WHERE words @@ plainto_tsquery('simple', %(text)s)"
)
VECTOR = "SELECT id, 1 - (embedding <=> %(vector)s::vector) AS score FROM movies"


@pytest.fixture(scope="module")
def connection() -> Iterator[psycopg.Connection]:
    """Connection to a temporary server with movies."""
    script = ROOT / "scripts" / "engine"
    environment = {**os.environ, "PYTHON": sys.executable}
    arguments = ("postgresql", f"--port={PORT}")
    started = subprocess.run([script, "start", *arguments], check=True, env=environment, stdout=subprocess.PIPE)
    try:
        with psycopg.connect(started.stdout.decode().strip(), autocommit=True) as opened:
            opened.execute("CREATE EXTENSION vector")
            opened.execute("CREATE TABLE movies (id int PRIMARY KEY, words tsvector, embedding vector(4))")
            rng = np.random.default_rng(0)
            for number in range(DOCUMENTS):
                text = " ".join(rng.choice(WORDS, rng.integers(2, 9)))
                row = (number, text, str(rng.standard_normal(4).tolist()))
                opened.execute("INSERT INTO movies VALUES (%s, to_tsvector('simple', %s), %s)", row)
            yield opened
    finally:
        subprocess.run([script, "stop", *arguments], check=True, env=environment)


def alone(connection: psycopg.Connection, clause: dict[str, Any]) -> dict[int, float]:
    rows = connection.execute(clause["sql"], clause["params"]).fetchall()
    return {int(number): float(score) for number, score in rows}


@pytest.mark.parametrize("normalizer", ["min_max", "none"])
@pytest.mark.parametrize("weights", [(1.0, 1.0), (3.0, 1.0), (0.0, 2.0), (2.0, 0.0)])
def test_order_is_that_of_our_scores(
    connection: psycopg.Connection, weights: tuple[float, float], normalizer: str
) -> None:
    rng = np.random.default_rng(1)
    for text in ("heat", "alien night", "rain"):
        clauses = {
            "title": {"sql": LEXICAL, "params": {"text": text}},
            "text": {"sql": VECTOR, "params": {"vector": str(rng.standard_normal(4).tolist())}},
        }
        scores = [alone(connection, clause) for clause in clauses.values()]
        X = np.array([[part.get(number, np.nan) for part in scores] for number in range(DOCUMENTS)])
        values = np.nan_to_num(X) if normalizer == "none" else normalize(X, np.array([0, DOCUMENTS]), "min_max")
        expected: NDArray[Any] = values @ (np.array(weights) / sum(weights))
        request = TARGETS.make(f"pgvector(limit={DOCUMENTS}, normalizer={normalizer!r})").request(
            dict(zip(clauses, weights, strict=True)),
            clauses,
            normalization="min_max" if normalizer == "min_max" else None,
        )
        rows = connection.execute(request["sql"], request["params"]).fetchall()
        assert len(rows) == DOCUMENTS
        along = expected[[int(number) for number, _ in rows]]
        np.testing.assert_allclose([float(score) for _, score in rows], along, atol=1e-5)
        assert np.all(np.diff(along) <= 1e-5)
