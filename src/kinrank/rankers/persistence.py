"""A ranker's name and settings as a file, so that what was chosen once can be trained again anywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kinrank.errors import FileFormatError, KinrankError
from kinrank.rankers import RANKERS
from kinrank.rankers.base import PARTS, Ranker
from kinrank.store import decode, encode


def ranker_record(ranker: Ranker) -> dict[str, Any]:
    """The name of a ranker and those of its settings that are not the defaults, as JSON can hold them.

    Examples
    --------
    >>> from kinrank import KnnRanker
    >>> ranker_record(KnnRanker(50, prior="global"))
    {'ranker': 'knn', 'settings': {'n_neighbors': 50, 'prior': 'global'}}
    """
    own = encode(ranker.get_params(deep=False), PARTS)
    usual = encode(type(ranker)().get_params(deep=False), PARTS)
    changed = {name: value for name, value in own.items() if value != usual[name]}
    return {"ranker": RANKERS.name_of(type(ranker)), "settings": changed}


def ranker_of(record: dict[str, Any]) -> Ranker:
    """The ranker, not fitted, that `ranker_record` was asked of."""
    ranker: Ranker = RANKERS[record["ranker"]](**decode(record["settings"], PARTS))
    return ranker


def read_settings(path: str | Path) -> Ranker:
    """The ranker, not fitted, that a settings file names: ``{"ranker": "knn", "settings": {"n_neighbors": 50}}``.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "settings.json"
    >>> _ = file.write_text('{"ranker": "knn", "settings": {"n_neighbors": 50}}')
    >>> read_settings(file)
    KnnRanker(n_neighbors=50)
    """
    try:
        record = json.loads(Path(path).read_bytes())
        return ranker_of(record)
    except (ValueError, KeyError, TypeError, KinrankError) as error:
        expected = '{"ranker": NAME, "settings": {NAME: VALUE}}'
        raise FileFormatError(path, 0, f"expected {expected}, as kinrank tune writes it ({error})") from None
