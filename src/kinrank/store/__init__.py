"""Model folders: a manifest and arrays, memory-mapped, without pickle, written atomically."""

from kinrank.store.model import Examples, ModelRecord, ranker_name, read_model, read_model_and_examples, write_model
from kinrank.store.params import decode, encode, nest, unnest
from kinrank.store.versions import Arm, ModelVersion, VersionStore, fingerprint

__all__ = [
    "Arm",
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
