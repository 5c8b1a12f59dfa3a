"""A model is a folder: manifest and arrays, memory-mapped, no pickle, written atomically."""

from kinrank.store.model import ModelRecord, read_model, write_model
from kinrank.store.params import decode, encode
from kinrank.store.state import nest, unnest

__all__ = ["ModelRecord", "decode", "encode", "nest", "read_model", "unnest", "write_model"]
