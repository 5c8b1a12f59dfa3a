"""The settings of a ranker as JSON, with the learners, describers and indexes that they name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kinrank.describe import DESCRIBERS
from kinrank.errors import FileFormatError, KinrankError
from kinrank.learn import LEARNERS
from kinrank.neighbors import INDEXES
from kinrank.rankers.registry import RANKERS, REGRESSORS
from kinrank.store import decode, encode

PARTS = (RANKERS, LEARNERS, REGRESSORS, DESCRIBERS, INDEXES)
"""The registries of what settings may hold."""


def settings_of(ranker: Any) -> dict[str, Any]:
    """Return the name of a ranker and its settings that differ from the defaults, ready for JSON."""
    settings = encode(ranker.storable_params(), PARTS)
    defaults = encode(type(ranker)().get_params(deep=False), PARTS)
    changed = {name: value for name, value in settings.items() if value != defaults[name]}
    return {"ranker": RANKERS.name_of(type(ranker)), "settings": changed}


def from_settings(record: dict[str, Any]) -> Any:
    """Return the unfitted ranker with settings from `settings_of`."""
    return RANKERS[record["ranker"]](**decode(record["settings"], PARTS))


def read_settings(path: str | Path) -> Any:
    """Return the unfitted ranker of a settings file: ``{"ranker": "knn", "settings": {"n_neighbors": 50}}``.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "settings.json"
    >>> _ = file.write_text('{"ranker": "knn", "settings": {"n_neighbors": 50}}')
    >>> read_settings(file)
    KnnRanker(n_neighbors=50)
    """
    try:
        return from_settings(json.loads(Path(path).read_bytes()))
    except (ValueError, KeyError, TypeError, KinrankError) as error:
        expected = '{"ranker": NAME, "settings": {NAME: VALUE}}'
        raise FileFormatError(path, 0, f"expected {expected}, as kinrank tune writes it ({error})") from None
