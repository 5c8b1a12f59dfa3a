"""Compile what the service needs while the image is built: fit small models and load them as the service does."""

import tempfile
from pathlib import Path

import kinrank.cli.app
import kinrank.serve._http.run  # noqa: F401 - compiled to bytecode, as all that they import
from kinrank import KinRanker, KnnRanker
from kinrank.datasets import make_two_camps
from kinrank.serve import Service, Settings

judged = make_two_camps(60)
with tempfile.TemporaryDirectory() as folder:
    rankers = {"kin": KinRanker(5), "scored": KinRanker(5, settings={"reference": 0}), "knn": KnnRanker(5, reference=0)}
    for name, ranker in rankers.items():
        ranker.fit(judged).save(Path(folder) / name, examples=judged[:5])
    with Service({name: Path(folder) / name for name in rankers}, settings=Settings(deadline=60.0)):
        pass
