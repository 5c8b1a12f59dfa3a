"""The ranking service, independent of any transport. `kinrank.serve._http` exposes it over HTTP."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kinrank.serve.messages import CandidateSet as CandidateSet
    from kinrank.serve.messages import Fallback as Fallback
    from kinrank.serve.messages import JudgedQuery as JudgedQuery
    from kinrank.serve.messages import Observer as Observer
    from kinrank.serve.messages import QueryExplanation as QueryExplanation
    from kinrank.serve.messages import QueryWeights as QueryWeights
    from kinrank.serve.messages import Ranking as Ranking
    from kinrank.serve.service import Service as Service
    from kinrank.serve.settings import Settings as Settings

# Imported on first use: managing keys and judgments does not load a ranker.
_MESSAGES = ["CandidateSet", "Fallback", "JudgedQuery", "Observer", "QueryExplanation", "QueryWeights", "Ranking"]
_PUBLIC = dict.fromkeys(_MESSAGES, "messages") | {"Service": "service", "Settings": "settings"}

__all__ = [*_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'kinrank.serve' has no attribute {name!r}")
    return getattr(importlib.import_module(f"kinrank.serve.{_PUBLIC[name]}"), name)
