"""Fast evaluation of LightGBM's trees, equal to `lightgbm.Booster.predict` in every bit.

This is QuickScorer's idea (Lucchese et al. 2015) on vectors of rows. The leaves of a tree are numbered from left to
right, and each row has one bit per leaf. A split that sends the row right clears the bits of its left subtree. The
lowest bit that remains is the row's leaf. No split waits for another, so the compiler turns each split into a
comparison of many rows at once. Trees with more leaves than bits are walked from the root instead.

The direction of a missing value is known in advance for each split, by LightGBM's missing types:

- *NaN*: the default direction of the split.
- *None*: NaN counts as 0, so it takes the direction of 0.
- *Zero*: the default direction, and 0 counts as missing too. These splits read a copy of the feature in which 0 is
  NaN.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numba
import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float32, Float64, Int64
from kinrank.errors import DataError, ParameterError

_BITS = 32
_ROWS = 128  # rows at once, so that their columns and bits stay in the cache
_LANES = 16  # rows are padded to a multiple of this; the compiler would handle the rest one by one
_TINY = float(np.float32(1e-35))  # LightGBM reads a number of at most this size as 0
_ALL = np.uint32(0xFFFFFFFF)
_ONE = np.uint32(1)

_CATEGORICAL, _DEFAULT_LEFT = 1, 2  # bits of decision_type; the next two are the missing type
_NONE, _ZERO = 0, 1


@dataclass(frozen=True, eq=False, repr=False)
class Forest:
    """The trees of one or several boosters as flat arrays.

    Examples
    --------
    >>> from kinrank.data.queryset import QuerySet
    >>> from kinrank.learn.lambdamart import LambdaMART
    >>> X, y = np.tile(np.arange(9.0), 10)[:, None], np.tile(np.arange(9) // 3, 10)
    >>> model = LambdaMART(n_trees=5).fit(QuerySet.from_arrays(X, y, group=[9] * 10))
    >>> forest = Forest.from_text(model.booster_.model_to_string())
    >>> bool((forest.predict(X) == model.booster_.predict(X)).all())
    True
    """

    n_features: int
    """The number of features of a row."""
    columns: Int64
    """The features that splits read; plus `n_features` for a copy in which 0 counts as missing."""
    first_node: Int64
    first_leaf: Int64
    """Where the splits and the leaves of each tree begin; shape (trees + 1,)."""
    first_right: Int64
    """Where the splits that send missing values right begin. The tree's earlier splits send them left; shape (trees,).
    """
    column: Int64
    threshold: Float64
    """A row goes right if its value in the column is above the threshold; shape (splits,)."""
    kept: NDArray[np.uint32]
    """The bits that remain if a row goes right; shape (splits,)."""
    root: Int64
    """The position of each tree's root; ``~position`` if it is a leaf; shape (trees,)."""
    left: Int64
    right: Int64
    """The positions of the children; shape (splits,)."""
    leaf: Float64
    """The value of each leaf, from left to right; shape (leaves,)."""

    @classmethod
    def from_text(cls, *models: str) -> Self:
        """Read models over the same features in LightGBM's text format (``lightgbm.Booster.model_to_string``).

        The forest of several models predicts the sum of their predictions.
        """
        fields = _fields(models)

        def whole(name: str) -> Int64:
            return np.array(" ".join(fields[name]).split(), dtype=np.int64)

        def real(name: str) -> Float64:
            return np.array(" ".join(fields[name]).split(), dtype=np.float64)

        decision = whole("decision_type")
        if (decision & _CATEGORICAL).any():
            raise ParameterError(
                "kinrank does not evaluate trees with categorical splits: encode the feature as numbers"
            )
        if whole("is_linear").any() or "average_output" in fields:
            raise ParameterError(
                "kinrank evaluates boosted trees with constant leaves: drop linear_tree, boosting='rf'"
            )
        n_features = int(whole("max_feature_idx")[0]) + 1
        threshold = real("threshold")
        missing = decision >> 2 & 3
        missing_left = np.where(missing == _NONE, threshold >= 0.0, (decision & _DEFAULT_LEFT) > 0)
        feature = whole("split_feature") + n_features * (missing == _ZERO)

        leaves = whole("num_leaves")
        first_node, first_leaf = _starts(leaves - 1), _starts(leaves)
        tree = np.repeat(np.arange(len(leaves)), leaves - 1)
        children = [whole(name) for name in ("left_child", "right_child")]
        leaf_at, kept = np.empty(first_leaf[-1], dtype=np.int64), np.empty(len(tree), dtype=np.uint32)
        _number_leaves(first_node, first_leaf, *children, leaf_at, kept)
        leaf = np.empty(len(leaf_at))
        leaf[leaf_at] = real("leaf_value")

        # Within each tree, splits that send missing values left come first.
        order = np.lexsort((~missing_left, tree))
        node_at = np.argsort(order)
        left, right = (_positions(each, tree, first_node, first_leaf, node_at, leaf_at)[order] for each in children)
        columns, column = np.unique(feature, return_inverse=True)
        tops = np.where(leaves > 1, 0, -1)
        return cls(
            n_features=n_features,
            columns=columns,
            first_node=first_node,
            first_leaf=first_leaf,
            first_right=first_node[:-1] + np.bincount(tree, missing_left, len(leaves)).astype(np.int64),
            column=column[order],
            threshold=threshold[order],
            kept=kept[order],
            root=_positions(tops, np.arange(len(leaves)), first_node, first_leaf, node_at, leaf_at),
            left=left,
            right=right,
            leaf=leaf,
        )

    @cached_property
    def _single(self) -> Float32:
        """The thresholds for float32 values: the largest float32 that is not above each threshold."""
        with np.errstate(over="ignore"):
            nearest = self.threshold.astype(np.float32)
        return np.where(nearest > self.threshold, np.nextafter(nearest, np.float32(-np.inf)), nearest)

    def predict(self, X: NDArray[Any]) -> Float64:
        """Return the sum of the trees' leaf values for each row of float32 or float64 features."""
        rows = np.asarray(X)
        if rows.ndim != 2 or rows.shape[1] != self.n_features:
            raise DataError(f"the trees read {self.n_features} features, got an array of shape {rows.shape}")
        if rows.dtype != np.float64:
            rows = rows.astype(np.float32, copy=False)
        threshold = self.threshold if rows.dtype == np.float64 else self._single
        scores = np.zeros(len(rows))
        if np.diff(self.first_leaf).max(initial=0) <= _BITS:
            starts = (self.first_node, self.first_right, self.first_leaf)
            _score_by_bits(rows, self.columns, *starts, self.column, threshold, self.kept, self.leaf, scores)
        else:
            links = (self.root, self.left, self.right, self.first_right)
            _score_by_walk(rows, self.columns, *links, self.column, threshold, self.leaf, scores)
        return scores


def _fields(models: Sequence[str]) -> dict[str, list[str]]:
    """Return the values of each field of the text format, of all models and trees in order."""
    fields: dict[str, list[str]] = defaultdict(list)
    for model in models:
        for line in model[: model.index("\nend of trees")].splitlines():
            name, _, value = line.partition("=")
            fields[name].append(value)
    return fields


def _starts(counts: Int64) -> Int64:
    return np.concatenate([[0], np.cumsum(counts)])


def _positions(
    child: Int64, tree: Int64, first_node: Int64, first_leaf: Int64, node_at: Int64, leaf_at: Int64
) -> Int64:
    """Return the positions in the forest of splits (or ``~leaf``) numbered within their tree."""
    is_leaf = child < 0
    nodes, leaves = np.where(is_leaf, 0, first_node[tree] + child), np.where(is_leaf, first_leaf[tree] + ~child, 0)
    # A forest whose trees are all single leaves has no node to look up.
    return np.where(is_leaf, ~leaf_at[leaves], node_at[nodes] if len(node_at) else 0)


@numba.njit(cache=True, nogil=True)
def _number_leaves(first_node, first_leaf, left, right, leaf_at, kept):  # type: ignore[no-untyped-def]
    """Number the leaves of each tree from left to right, and set the bits that each split keeps.

    LightGBM numbers splits in the order in which it makes them, so a child's number is above its parent's.
    """
    size = np.empty(len(left), dtype=np.int64)
    start = np.empty(len(left), dtype=np.int64)
    for t in range(len(first_node) - 1):
        base, leaves = first_node[t], first_leaf[t]
        if first_node[t + 1] == base:
            leaf_at[leaves] = leaves
            continue
        for i in range(first_node[t + 1] - 1, base - 1, -1):
            size[i] = 0
            for child in (left[i], right[i]):
                size[i] += 1 if child < 0 else size[base + child]
        start[base] = 0
        for i in range(base, first_node[t + 1]):
            n_left = 1 if left[i] < 0 else size[base + left[i]]
            bits = ((np.uint64(1) << np.uint64(n_left)) - np.uint64(1)) << np.uint64(start[i])
            kept[i] = np.uint32(np.uint64(0xFFFFFFFF) & ~bits)
            for child, place in ((left[i], start[i]), (right[i], start[i] + n_left)):
                if child < 0:
                    leaf_at[leaves + ~child] = leaves + place
                else:
                    start[base + child] = place


@numba.njit(cache=True, nogil=True)
def _read_columns(X, start, stop, columns, padded, block):  # type: ignore[no-untyped-def]
    """Copy the columns of some rows, one after another, as LightGBM reads them."""
    for j in range(len(columns)):
        feature, zero_is_missing = columns[j] % X.shape[1], columns[j] >= X.shape[1]
        column = block[j]
        for r in range(stop - start):
            value = X[start + r, feature]
            if abs(value) <= _TINY:
                value = X.dtype.type(0)
            if zero_is_missing and value == 0:
                value = X.dtype.type(np.nan)
            column[r] = value
        for r in range(stop - start, padded):
            column[r] = 0


@numba.njit(cache=True, nogil=True)
def _score_by_bits(X, columns, first_node, first_right, first_leaf, column, threshold, kept, leaf, scores):  # type: ignore[no-untyped-def]
    """Add the leaf values of trees with at most `_BITS` leaves."""
    block = np.empty((len(columns), _ROWS), dtype=X.dtype)
    bits = np.empty(_ROWS, dtype=np.uint32)
    total = np.empty(_ROWS)
    for start in range(0, len(X), _ROWS):
        n = min(_ROWS, len(X) - start)
        padded = (n + _LANES - 1) // _LANES * _LANES
        _read_columns(X, start, start + n, columns, padded, block)
        total[:] = 0.0
        for t in range(len(first_right)):
            bits[:padded] = _ALL
            for i in range(first_node[t], first_right[t]):
                values, limit, mask = block[column[i]], threshold[i], kept[i]
                for r in range(padded):  # NaN is not above: it goes left
                    bits[r] &= mask if values[r] > limit else _ALL
            for i in range(first_right[t], first_node[t + 1]):
                values, limit, mask = block[column[i]], threshold[i], kept[i]
                for r in range(padded):  # NaN is not below: it goes right
                    bits[r] &= _ALL if values[r] <= limit else mask
            leaves = leaf[first_leaf[t] : first_leaf[t + 1]]
            for r in range(padded):
                lowest = bits[r] & (~bits[r] + _ONE)
                # The exponent of a power of 2 as float32 is the place of its bit; unlike a loop, this vectorizes.
                total[r] += leaves[(np.float32(lowest).view(np.int32) >> 23) - 127]
        scores[start : start + n] += total[:n]


@numba.njit(cache=True, nogil=True)
def _score_by_walk(X, columns, root, left, right, first_right, column, threshold, leaf, scores):  # type: ignore[no-untyped-def]
    """Add the leaf values of trees of any size."""
    block = np.empty((len(columns), _ROWS), dtype=X.dtype)
    for start in range(0, len(X), _ROWS):
        n = min(_ROWS, len(X) - start)
        _read_columns(X, start, start + n, columns, n, block)
        for t in range(len(root)):
            for r in range(n):
                node = root[t]
                while node >= 0:
                    value = block[column[node], r]
                    if value > threshold[node] or (np.isnan(value) and node >= first_right[t]):
                        node = right[node]
                    else:
                        node = left[node]
                scores[start + r] += leaf[~node]
