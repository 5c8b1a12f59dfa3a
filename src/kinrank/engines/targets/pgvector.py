"""PostgreSQL with pgvector: one SELECT that combines the scores of several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from kinrank.data.normalization import Normalization
from kinrank.engines.targets.base import Fuses, Target, normalize_weights
from kinrank.errors import DataError
from kinrank.registry.choices import check_choice

_MIN_MAX = (
    "COALESCE(GREATEST((score - MIN(score) OVER ()) / NULLIF(MAX(score) OVER () - MIN(score) OVER (), 0), 0.001), 1)"
)
"""As in OpenSearch: the lowest score of a search becomes 0.001; 1 if all are equal."""


@dataclass(frozen=True)
class HybridSelect(Target):
    """Hybrid search in one statement for PostgreSQL with pgvector 0.5.

    A clause is a ``SELECT`` that returns the columns `id` and `score`, higher is better, with its parameters:
    ``{"sql": "SELECT id, 1 - (embedding <=> %(vector)s::vector) AS score FROM documents ORDER BY embedding <=>
    %(vector)s::vector LIMIT 100", "params": {"vector": "[0.1, 0.9]"}}``. A row that a clause does not return gets 0
    from it. Run the result with psycopg: ``connection.execute(request["sql"], request["params"])``.

    Notes
    -----
    Weights must not be negative. They are divided by their sum, and passed as parameters, so that the statement is the
    same for every query.

    Examples
    --------
    >>> clauses = {name: {"sql": f"SELECT id, {name} AS score FROM documents"} for name in ("rank", "votes")}
    >>> HybridSelect().request({"rank": 3.0, "votes": 1.0}, clauses)["params"]
    {'weight_0': 0.75, 'weight_1': 0.25, 'limit': 10}
    """

    version = "pgvector 0.5"
    documentation = "https://github.com/pgvector/pgvector#hybrid-search"
    clause_kind = "a SELECT"

    normalizer: Literal["min_max", "none"] = "min_max"
    """Normalization of the scores of each clause over the rows that it returns."""
    limit: int = 10
    """Number of rows to return."""

    @property
    def fuses(self) -> Fuses:
        """Scores normalized per query, unless the normalizer is off."""
        return "scores" if self.normalizer == "none" else "normalized scores"

    @property
    def normalization(self) -> Normalization | None:
        """As set by the normalizer."""
        check_choice("normalizer", self.normalizer, ("min_max", "none"))
        return None if self.normalizer == "none" else "min_max"

    def _request(self, weights: dict[str, float], clauses: dict[str, Any]) -> dict[str, Any]:
        value = "score" if self.normalization is None else _MIN_MAX
        parts = []
        params: dict[str, Any] = {}
        for position, (name, share) in enumerate(zip(weights, normalize_weights(weights, self.version), strict=True)):
            clause = clauses[name]
            if not isinstance(clause, dict) or "sql" not in clause:
                raise DataError(f'the clause of {name!r} must be {{"sql": ..., "params": {{...}}}}, got {clause!r}')
            params |= clause.get("params", {})
            params[f"weight_{position}"] = share
            # Only SQL of the caller's own clauses is put together; values are parameters.
            weighted = f"%(weight_{position})s * {value} AS score"
            parts.append(f"SELECT id, {weighted} FROM ({clause['sql']}) AS c{position}")  # noqa: S608
        union = "\nUNION ALL\n".join(parts)
        ranked = "GROUP BY id ORDER BY score DESC LIMIT %(limit)s"
        sql = f"SELECT id, SUM(score) AS score FROM (\n{union}\n) AS hits {ranked}"  # noqa: S608
        return {"sql": sql, "params": {**params, "limit": self.limit}}
