"""Vespa: weights as an input of the rank profile."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from kinrank.engines.targets.base import Target


@dataclass(frozen=True)
class QueryInput(Target):
    """Weights as a mapped tensor in the query, for a rank profile that multiplies its features with it (Vespa 8).

    The rank profile declares the tensor and names the features by the same labels::

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
        The rank profile.
    tensor : str
        The name of the input.

    Notes
    -----
    Weights of any sign are sent as they are. Add `yql` and whatever else the query needs to the request.

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
        # A mapped tensor of one dimension in literal form, every label in quotes, is written as JSON writes an object.
        return {"ranking": self.profile, f"input.query({self.tensor})": json.dumps(weights, ensure_ascii=False)}
