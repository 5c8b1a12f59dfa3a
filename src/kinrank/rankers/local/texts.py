"""Rankers that encode the text of a query by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self, cast

from threadpoolctl import threadpool_limits

from kinrank.arrays import State
from kinrank.data.blocks import Blocks, Sample
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import TEXT
from kinrank.data.vectors import VECTORS
from kinrank.describe.encoders import Encoder, EncoderSpec, make_encoder
from kinrank.errors import DamagedFolderError, DataError
from kinrank.parallel import Executor, map_ordered
from kinrank.rankers.base import Ranker
from kinrank.rankers.capabilities import capabilities_of
from kinrank.rankers.local.intermediate import SAMPLE_ROWS, Store
from kinrank.store import nest, unnest


class TextRanker(Ranker):
    """Base of rankers that turn query texts into the vectors that describe queries.

    Vectors given by the caller take precedence: then nothing is encoded, neither in `fit` nor later.

    Attributes
    ----------
    encoder_ : Encoder or None
        The encoder, fitted on the training queries if it learns. None if there were no texts, or vectors were given.
    """

    encoder: EncoderSpec | None

    encoder_: Encoder | None

    def _fit_encoder(self, queries: QuerySet) -> QuerySet:
        """Fit the encoder on the training queries' texts, if they have any; return them with vectors."""
        self.encoder_ = None
        if self.encoder is None or VECTORS in queries.query_columns or TEXT not in queries.query_columns:
            return queries
        self._fit_encoder_on(self.encoder, queries.query_columns[TEXT].tolist())
        return self.encoded(queries)

    def _fit_encoder_on(self, spec: EncoderSpec, texts: list[str]) -> None:
        encoder = make_encoder(spec)
        self.encoder_ = encoder if encoder.is_fitted else encoder.fit(texts)

    def encode_blocks(self, blocks: Blocks, executor: Executor, store: Store) -> Blocks:
        """Fit the encoder on the texts of a sample of the queries, if they have any; return blocks with vectors.

        The fitted encoder is kept in the store.
        """
        self.encoder_ = None
        columns = blocks.head().query_columns
        if self.encoder is None or VECTORS in columns or TEXT not in columns:
            return blocks
        with suppress(DamagedFolderError):
            self._restore_encoder(store.read("encoder"))
        if self.encoder_ is None:
            sample = Sample.of_rows(blocks, SAMPLE_ROWS)
            texts = map_ordered(executor, _SampledTexts(blocks, sample), sample.blocks)
            with threadpool_limits(1):  # several BLAS threads may add in another order
                self._fit_encoder_on(self.encoder, [text for some in texts for text in some])
            store.write("encoder", self._encoder_state())
        return EncodedBlocks(blocks, self)

    def read_alike(self, blocks: Blocks) -> Blocks:
        """Return blocks of further queries with vectors, as the fitted encoder makes them."""
        return blocks if self.encoder_ is None else EncodedBlocks(blocks, self)

    def encoded(self, queries: QuerySet) -> QuerySet:
        """Return the queries with a vector each, encoded from their texts unless they have vectors already."""
        if self.encoder_ is None or VECTORS in queries.query_columns:
            return queries
        if TEXT not in queries.query_columns:
            raise DataError(
                f"the ranker was fitted with query texts (encoder {self.encoder_.spec!r}), and these queries have "
                "none: pass query_text=, a text per query, or query_vectors="
            )
        vectors = self.encoder_.encode(queries.query_columns[TEXT].tolist())
        return queries.replace(query_columns={**queries.query_columns, VECTORS: vectors})

    def storable_params(self) -> dict[str, Any]:
        """Return the parameters as a model folder can hold them: an encoder by its name."""
        params = super().storable_params()
        given = params.get("encoder")
        if given is not None and not isinstance(given, str):
            params["encoder"] = make_encoder(given).spec
        return params

    def _encoder_state(self) -> State:
        return {} if self.encoder_ is None else nest(encoder=self.encoder_.get_state())

    def _restore_encoder(self, state: State) -> Self:
        own = unnest(state, "encoder")
        self.encoder_ = make_encoder(self.encoder).set_state(own) if own and self.encoder is not None else None
        return self


@dataclass(frozen=True, eq=False)
class _SampledTexts:
    """Reads the texts of a block's queries that are in a sample."""

    blocks: Blocks
    sample: Sample

    def __call__(self, block: int) -> list[str]:
        return [text for part in self.sample.select(self.blocks.read(block)) for text in part.query_columns[TEXT]]


class EncodedBlocks(Blocks):
    """Blocks of queries whose texts are encoded when they are read.

    Parameters
    ----------
    blocks
        The queries.
    ranker
        A ranker with a fitted encoder.
    """

    def __init__(self, blocks: Blocks, ranker: TextRanker) -> None:
        self.blocks = blocks
        self.ranker = ranker
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
        return map(self.ranker.encoded, self.blocks.read(block))

    def name(self, block: int) -> str:
        """Return where the block is stored."""
        return self.blocks.name(block)

    def fingerprint(self) -> str:
        """Return a text that changes with the data and with how it is split."""
        return self.blocks.fingerprint()


def unfitted_encoder(ranker: object) -> Encoder | None:
    """Return the encoder that a ranker would fit, or None if its settings name none."""
    given = cast(TextRanker, ranker).encoder
    return None if given is None else make_encoder(given)


def text_encoder(ranker: object) -> Encoder | None:
    """Return the encoder of a fitted ranker, or None if it does not encode query texts."""
    return cast(TextRanker, ranker).encoder_ if capabilities_of(ranker).text else None


def with_vectors(ranker: object, queries: QuerySet) -> QuerySet:
    """Return the queries with the vectors that a fitted ranker encodes, or unchanged if it encodes no texts."""
    return cast(TextRanker, ranker).encoded(queries) if capabilities_of(ranker).text else queries
