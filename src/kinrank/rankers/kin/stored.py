"""The evidence of a model folder: in it, or in a folder of its own that the model names."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from kinrank.arrays import State
from kinrank.errors import StoreError
from kinrank.memory.evidence import Evidence
from kinrank.store import ModelRecord, nest, read_model_and_examples, write_model

_META = "meta"


def evidence_state(evidence: Evidence) -> State:
    """Return evidence as arrays, with what its folder says about its source."""
    meta = json.dumps(evidence.meta | {"days": evidence.days}).encode()
    return {**evidence.get_state(), _META: np.frombuffer(meta, dtype=np.uint8)}


def evidence_from_state(state: State) -> Evidence:
    """Return the evidence of `evidence_state`; models of an earlier version do not say what its source is."""
    meta = state.get(_META)
    return Evidence(state, None if meta is None else json.loads(meta.tobytes()))


def path_from(folder: str | os.PathLike[str] | None, evidence: str | os.PathLike[str]) -> str:
    """Return the path of evidence for a model in a folder: relative to that if it was given as a relative path.

    So a model and its evidence can be moved together, and a model that is loaded elsewhere finds it.
    """
    given = os.fspath(evidence)
    if folder is None or os.path.isabs(given):
        return os.path.abspath(given)
    return os.path.relpath(os.path.realpath(given), os.path.realpath(folder))


def find_evidence(record: ModelRecord) -> str | None:
    """Return the folder of the evidence of a model; None if it has none of its own.

    Raises
    ------
    StoreError
        If it is not there.
    """
    named: str | None = record.params.get("evidence")
    if named is None:
        return None
    # Earlier versions stored the path as it was typed.
    places = [named] if record.path is None else [os.path.join(os.path.realpath(record.path), named), named]
    for place in places:
        if os.path.isdir(place):
            return os.path.abspath(place)
    raise StoreError(
        f"{record.path or 'the model'}: its evidence is not at {os.path.normpath(places[0])}: copy the folder of "
        "kinrank clicks --evidence there, or publish the model where both are (kinrank admin models ADDRESS --publish "
        "MODEL), which puts the evidence into it"
    )


@contextmanager
def with_evidence_inside(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a model folder that needs no other folder: the given one, or a temporary copy with its evidence."""
    record, examples = read_model_and_examples(path)
    found = find_evidence(record)
    if found is None:
        yield Path(path)
        return
    arrays = record.arrays | nest(chosen=nest(evidence=evidence_state(Evidence.open(found, verify=True))))
    whole = replace(record, params=record.params | {"evidence": None}, arrays=arrays)
    with tempfile.TemporaryDirectory(prefix="kinrank-publish-") as place:
        write_model(Path(place) / "model", whole, examples)
        yield Path(place) / "model"
