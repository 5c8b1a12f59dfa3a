"""Vespa: weights as an input of a rank profile."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from kinrank.engines.targets.base import Target


@dataclass(frozen=True)
class QueryInput(Target):
    """Weights as a mapped tensor in the query, for a rank profile that multiplies its features by it (Vespa 8).

    The rank profile declares the tensor and uses the feature names as labels::

        rank-profile kinrank {
            inputs {
                query(weights) tensor<float>(feature{})
            }
            function features() {
                expression: tensor<float>(feature{}):{title: bm25(title), popularity: attribute(popularity)}
            }
            first-phase {
                expression: sum(query(weights) * features)
            }
        }

    Parameters
    ----------
    profile : str
        Name of the rank profile.
    tensor : str
        Name of the input.

    Notes
    -----
    Weights of any sign are sent unchanged. Add `yql` and the other parameters of the query to the request.

    Examples
    --------
    >>> QueryInput().request({"title": 0.5, "popularity": -0.1})
    {'ranking': 'kinrank', 'input.query(weights)': '{"title": 0.5, "popularity": -0.1}'}
    """

    version: ClassVar[str] = "Vespa 8"
    documentation: ClassVar[str] = "https://docs.vespa.ai/en/reference/api/query.html"
    allows_negative: ClassVar[bool] = True

    profile: str = "kinrank"
    tensor: str = "weights"

    def _request(self, weights: dict[str, float], clauses: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        # The literal form of a mapped tensor with one dimension and quoted labels is a JSON object.
        return {"ranking": self.profile, f"input.query({self.tensor})": json.dumps(weights, ensure_ascii=False)}
