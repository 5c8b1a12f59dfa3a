"""Rankers that encode the text of a query by themselves."""

from __future__ import annotations

from typing import Any, Self, cast

from kinrank.arrays import State
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import TEXT
from kinrank.data.vectors import VECTORS
from kinrank.describe.encoders import Encoder, EncoderSpec, make_encoder
from kinrank.errors import DataError
from kinrank.rankers.base import Ranker
from kinrank.rankers.capabilities import capabilities_of
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
        encoder = make_encoder(self.encoder)
        self.encoder_ = encoder if encoder.is_fitted else encoder.fit(queries.query_columns[TEXT].tolist())
        return self.encoded(queries)

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
