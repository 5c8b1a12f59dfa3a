"""The service: ranking live traffic beside the engine, without HTTP (`kinrank.serve.http` puts that over it)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kinrank.serve.messages import Candidates as Candidates
    from kinrank.serve.messages import Fallback as Fallback
    from kinrank.serve.messages import Judged as Judged
    from kinrank.serve.messages import Ranking as Ranking
    from kinrank.serve.messages import Weights as Weights
    from kinrank.serve.observer import Observer as Observer
    from kinrank.serve.service import Service as Service
    from kinrank.serve.settings import Settings as Settings

# Looked up on first use: keys and journals are handled without loading a ranker.
_PUBLIC = {
    "Candidates": "kinrank.serve.messages",
    "Fallback": "kinrank.serve.messages",
    "Judged": "kinrank.serve.messages",
    "Observer": "kinrank.serve.observer",
    "Ranking": "kinrank.serve.messages",
    "Service": "kinrank.serve.service",
    "Settings": "kinrank.serve.settings",
    "Weights": "kinrank.serve.messages",
}

__all__ = [*_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'kinrank.serve' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
