"""Model folders: a manifest and arrays, memory-mapped, without pickle, written atomically."""

from kinrank.store.model import (
    Examples,
    ModelRecord,
    decode,
    encode,
    nest,
    ranker_name,
    read_model,
    read_model_and_examples,
    unnest,
    write_model,
)
from kinrank.store.versions import ModelVersion, VersionStore, fingerprint

__all__ = [
    "Examples",
    "ModelRecord",
    "ModelVersion",
    "VersionStore",
    "decode",
    "encode",
    "fingerprint",
    "nest",
    "ranker_name",
    "read_model",
    "read_model_and_examples",
    "unnest",
    "write_model",
]
