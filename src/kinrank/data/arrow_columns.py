"""Kinds of Arrow columns, and categories and views of text as plain text."""

from __future__ import annotations

import pyarrow as pa


def decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values of categories, and views of text, which is what Polars has, as text."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    plain = pa.large_string() if pa.types.is_string_view(kind) else kind  # Arrow has few functions for views
    if not pa.types.is_dictionary(column.type):
        return column if plain == kind else column.cast(plain)
    return pa.chunked_array([part.dictionary.cast(plain).take(part.indices) for part in column.chunks], plain)


def is_number(kind: pa.DataType) -> bool:
    """Return whether values can be features: numbers, truth values or nothing."""
    t = pa.types
    matches: bool = (
        t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind) or t.is_boolean(kind) or t.is_null(kind)
    )
    return matches


def is_text(kind: pa.DataType) -> bool:
    """Return whether values are text."""
    matches: bool = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return matches
