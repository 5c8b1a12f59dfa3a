"""Query texts as the vectors that describe queries, for rankers that encode them by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from threadpoolctl import threadpool_limits

from kinrank.arrays import State
from kinrank.data.blocks import SAMPLE_ROWS, Blocks, Sample, Store
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import TEXT, VECTORS
from kinrank.errors import DamagedFolderError, DataError
from kinrank.kin.encoders import Encoder, EncoderSpec, make_encoder
from kinrank.kin.encoders._pretrained import CustomEncoder
from kinrank.kin.encoders.guard import EncoderGuard
from kinrank.kin.encoders.ngrams import NgramEncoder
from kinrank.parallel import Executor, map_ordered
from kinrank.rankers.capabilities import capabilities_of
from kinrank.store import nest, unnest


def fit_encoder(spec: EncoderSpec | None, queries: QuerySet) -> Encoder | None:
    """Return the encoder, fitted on the texts of training queries if it learns.

    None if there are no texts, or if the caller has given vectors: then nothing is encoded, neither now nor later.
    """
    if spec is None or VECTORS in queries.query_columns or TEXT not in queries.query_columns:
        return None
    return _fit_on(spec, queries.query_columns[TEXT].tolist())


def _fit_on(spec: EncoderSpec, texts: list[str]) -> Encoder:
    encoder = make_encoder(spec)
    return encoder if encoder.is_fitted else encoder.fit(texts)


def fit_encoder_on_blocks(spec: EncoderSpec | None, blocks: Blocks, executor: Executor, store: Store) -> Encoder | None:
    """Return the encoder, fitted on the texts of a sample of the queries, and keep it in the store."""
    columns = blocks.head().query_columns
    if spec is None or VECTORS in columns or TEXT not in columns:
        return None
    with suppress(DamagedFolderError):
        return restore_encoder(spec, store.read("encoder"))
    sample = Sample.of_rows(blocks, SAMPLE_ROWS)
    texts = map_ordered(executor, _SampledTexts(blocks, sample), sample.blocks)
    with threadpool_limits(1):  # several BLAS threads may add in another order
        encoder = _fit_on(spec, [text for texts_of_block in texts for text in texts_of_block])
    store.write("encoder", encoder_state(encoder))
    return encoder


def encode_texts(encoder: Encoder | None, queries: QuerySet) -> QuerySet:
    """Return the queries with a vector each, encoded from their texts unless they have vectors already."""
    if encoder is None or VECTORS in queries.query_columns:
        return queries
    if TEXT not in queries.query_columns:
        raise DataError(
            f"the ranker was fitted with query texts (encoder {encoder.spec!r}), and these queries have none: pass "
            "query_text=, a text per query, or query_vectors="
        )
    vectors = encoder.encode(queries.query_columns[TEXT].tolist())
    return queries.replace(query_columns={**queries.query_columns, VECTORS: vectors})


def guard_of(encoder: Encoder | None, width: int) -> EncoderGuard | None:
    """Return what stands between a ranker and an encoder that may fail; None if there is none that could.

    One that was given in Python, and not when the model was loaded, is not down: it is missing.
    """
    missing = isinstance(encoder, CustomEncoder) and encoder.model is None
    return None if encoder is None or missing or isinstance(encoder, NgramEncoder) else EncoderGuard(encoder, width)


def guarded(guard: EncoderGuard | None, queries: QuerySet) -> QuerySet:
    """Return the queries with a vector each, of zeros if the encoder is down."""
    columns = queries.query_columns
    if guard is None or VECTORS in columns or TEXT not in columns:
        return queries
    return queries.replace(query_columns={**columns, VECTORS: guard.encode_or_zeros(columns[TEXT].tolist())})


def has_meaning(encoder: Encoder | None, queries: QuerySet) -> bool:
    """Return whether queries have vectors that say more than their letters do: given ones, or of a pretrained model."""
    return VECTORS in queries.query_columns and not isinstance(encoder, NgramEncoder)


def encoder_state(encoder: Encoder | None) -> State:
    """Return the arrays of an encoder, nested in those of its ranker."""
    return {} if encoder is None else nest(encoder=encoder.get_state())


def restore_encoder(spec: EncoderSpec | None, state: State) -> Encoder | None:
    """Restore the encoder of a ranker from the arrays of `encoder_state`."""
    arrays = unnest(state, "encoder")
    return make_encoder(spec).set_state(arrays) if arrays and spec is not None else None


@dataclass(frozen=True, eq=False)
class _SampledTexts:
    """Reads the texts of a block's queries that are in a sample."""

    blocks: Blocks
    sample: Sample

    def __call__(self, block: int) -> list[str]:
        return [text for part in self.sample.select(self.blocks.read(block)) for text in part.query_columns[TEXT]]


class EncodedBlocks(Blocks):
    """Blocks of queries whose texts are encoded when they are read."""

    def __init__(self, blocks: Blocks, encoder: Encoder) -> None:
        self.blocks = blocks
        self.encoder = encoder
        self.feature_names = blocks.feature_names

    def __len__(self) -> int:
        return len(self.blocks)

    def split(self, rows_per_block: int) -> Self:
        """Split again."""
        self.blocks.split(rows_per_block)
        return self

    def n_rows(self, block: int) -> int:
        """Return the approximate number of rows of a block."""
        return self.blocks.n_rows(block)

    def read(self, block: int) -> Iterator[QuerySet]:
        """Yield the queries of a block with vectors."""
        return map(partial(encode_texts, self.encoder), self.blocks.read(block))

    def name(self, block: int) -> str:
        """Return where the block is stored."""
        return self.blocks.name(block)

    def fingerprint(self) -> str:
        """Return a text that changes with the data and with how it is split."""
        return self.blocks.fingerprint()


def unfitted_encoder(ranker: Any) -> Encoder | None:
    """Return the encoder that a ranker would fit, or None if its settings name none."""
    return make_encoder(ranker.encoder) if capabilities_of(ranker).text and ranker.encoder is not None else None


def text_encoder(ranker: Any) -> Encoder | None:
    """Return the encoder of a fitted ranker, or of the one that it wraps, or None if it does not encode query texts."""
    if not capabilities_of(ranker).text:
        return None
    return ranker.encoder_ if hasattr(ranker, "encoder_") else text_encoder(ranker.ranker_)


def with_vectors(ranker: object, queries: QuerySet) -> QuerySet:
    """Return the queries with the vectors that a fitted ranker encodes, or unchanged if it encodes no texts."""
    return encode_texts(text_encoder(ranker), queries)
