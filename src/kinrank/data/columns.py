"""Convert what callers pass to arrays that can be sorted, stored and memory-mapped."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.arrays import Float32
from kinrank.errors import DataError


def as_ids(values: ArrayLike, name: str) -> NDArray[Any]:
    """Return ids as an integer or text array, never as objects."""
    ids = np.asarray(values)
    if ids.ndim != 1:
        raise DataError(f"{name} must have one dimension, got shape {ids.shape}")
    if ids.dtype.kind == "U" and isinstance(values, list | tuple) and values:
        return _ids_from_objects(list(values), name)  # NumPy turns a number among strings into a string
    if ids.dtype.kind in "iuU":
        return ids
    if ids.dtype.kind == "S":
        return np.char.decode(ids, "utf-8")
    if ids.dtype.kind == "f":
        whole = np.isfinite(ids) & (ids == np.floor(ids))
        if not whole.all():
            row = int(np.argmin(whole))
            raise DataError(f"{name}[{row}] is {ids[row]}, but ids are whole numbers or text: fill it or drop the row")
        return ids.astype(np.int64)
    if not ids.size:
        return ids.astype(np.str_)
    return _ids_from_objects(ids.tolist(), name)


def _ids_from_objects(values: list[Any], name: str) -> NDArray[Any]:
    kind = str if isinstance(values[0], str) else int
    for row, value in enumerate(values):
        if not isinstance(value, kind) or isinstance(value, bool):
            raise DataError(
                f"{name}[{row}] is {value!r} ({type(value).__name__}), but ids are all whole numbers or all text: fill "
                "it or drop the row"
            )
    return np.array(values, dtype=np.str_ if kind is str else np.int64)


def as_grades(y: ArrayLike) -> Float32:
    """Return grades as a float32 array of finite numbers, or NaN for rows that are not judged."""
    check_grades_are_numbers(y)
    grades = np.asarray(y, dtype=np.float32)
    if grades.ndim != 1:
        raise DataError(f"y must have one dimension, got shape {grades.shape}")
    if np.any(np.isinf(grades)):
        row = int(np.argmax(np.isinf(grades)))
        raise DataError(f"y[{row}] is {grades[row]}, but a grade must be finite, or NaN if the row is not judged")
    return grades


def check_grades_are_numbers(y: ArrayLike) -> None:
    """Raise `DataError` if a grade is text that is no number.

    Examples
    --------
    >>> check_grades_are_numbers(["bad", "good"])
    Traceback (most recent call last):
    ...
    kinrank.errors.DataError: y[0] is 'bad', but grades are numbers, higher is better: map each name to a number
    """
    array = np.asarray(y)
    if array.dtype.kind not in "OSU":
        return
    for row, value in enumerate(array.ravel().tolist()):
        try:
            float(value)
        except ValueError:
            raise DataError(
                f"y[{row}] is {value!r}, but grades are numbers, higher is better: map each name to a number"
            ) from None
        except TypeError:
            return  # another kind of object, which NumPy's own message describes


def as_weights(sample_weight: ArrayLike) -> Float32:
    """Return row weights as a float32 array of finite numbers that are not negative."""
    weights = np.asarray(sample_weight, dtype=np.float32)
    if weights.ndim != 1:
        raise DataError(f"sample_weight must have one dimension, got shape {weights.shape}")
    wrong = ~np.isfinite(weights) | (weights < 0)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(f"sample_weight[{row}] is {weights[row]}, but a weight must be finite and not negative")
    return weights


def as_column(values: ArrayLike) -> NDArray[Any]:
    """Return a query column. Objects become text, None becomes empty text."""
    column = np.asarray(values)
    if column.dtype != object:
        return column
    return np.array(["" if value is None else str(value) for value in column.tolist()], dtype=np.str_)
