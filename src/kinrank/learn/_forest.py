"""Trees of LightGBM and XGBoost: read from their files, and evaluated fast.

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

import json
import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numba
import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float32, Float64, Int64
from kinrank.errors import DataError, FileFormatError, ParameterError

# --- read boosted trees that LightGBM or XGBoost has saved, as LightGBM's text format ---------------------------------
#
# XGBoost sends a value left if it is *below* a split's condition, LightGBM if it is *not above* the threshold. Values
# are float32, so both agree if the threshold is the next smaller float32. XGBoost adds up leaves in float32 and starts
# from its base score; here they are summed in float64 without it. So scores differ by a constant and by rounding.


_DEFAULT_LEFT, _MISSING_IS_NAN = 2, 8  # bits of LightGBM's decision_type
_ONE_SCORE = "expected trees with one score for a row: train with one target, not several classes, and booster='gbtree'"
_UNNAMED = re.compile(r"Column_\d+")
_WHOLE, _REAL = re.compile(r"-?\d{1,9}"), re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:inf|nan)")
_TAIL = re.compile(
    r"\n*(?:feature_importances:\n(?:[^\n=]+=[-+.\de]+\n)*\n)?"
    r"(?:parameters:\n(?:\[\w+: [^\n\]]*\]\n)*\nend of parameters\n)?\n*(?:pandas_categorical:[^\n]*\n?)?"
)
_HEAD = {"version", "num_class", "num_tree_per_iteration", "label_index", "max_feature_idx", "objective"} | {
    "feature_names", "feature_infos", "monotone_constraints", "tree_sizes",
}  # fmt: skip
_SPLIT_NUMBERS = ("threshold", "split_gain", "internal_value", "internal_weight", "internal_count")
_OF_SPLITS = dict.fromkeys(("split_feature", "decision_type", "left_child", "right_child"), _WHOLE) | dict.fromkeys(
    _SPLIT_NUMBERS, _REAL
)
_OF_LEAVES = dict.fromkeys(("leaf_value", "leaf_weight", "leaf_count"), _REAL)
_OF_TREE = {"num_leaves": _WHOLE, "num_cat": _WHOLE, "is_linear": _WHOLE, "shrinkage": _REAL}
_NEEDED = (
    "num_leaves",
    "num_cat",
    "leaf_value",
    "split_feature",
    "threshold",
    "decision_type",
    "left_child",
    "right_child",
)


@dataclass(frozen=True)
class _TreeFile:
    """Trees in LightGBM's text format, and the features they read."""

    text: str
    """The trees."""
    n_features: int
    """The number of features."""
    feature_names: tuple[str, ...]
    """The names of the features; empty if the file has none."""

    def reading(self, feature_names: Sequence[str]) -> str:
        """Return the trees so that they read rows with these features.

        Features are found by name. Without names in the file, there must be as many features, in the same order.

        Raises
        ------
        DataError
            If a feature is missing, or the number of unnamed features differs.
        """
        if not self.feature_names:
            if len(feature_names) != self.n_features:
                raise DataError(
                    f"the trees read {self.n_features} features without names, got {len(feature_names)}: pass the same "
                    "features in the same order, or save the trees with feature names"
                )
            return self.text
        # LightGBM writes a space in a name as an underscore.
        place = {name.replace(" ", "_"): column for column, name in enumerate(feature_names)}
        wanted = [name.replace(" ", "_") for name in self.feature_names]
        missing = [name for name in wanted if name not in place]
        if missing:
            raise DataError(
                f"the trees read {missing[0]!r}, which is not among the features {', '.join(feature_names)} "
                f"({len(missing)} of {self.n_features} are missing): rename the columns of the data"
            )
        return _over_columns(self.text, [place[name] for name in wanted], len(feature_names))


def read_trees(path: str | os.PathLike[str]) -> _TreeFile:
    """Read a model file of LightGBM (text) or XGBoost (JSON).

    An XGBoost model with early stopping has its trees up to the best iteration, as in ``XGBRanker.predict``.
    """
    raw = Path(path).read_bytes()
    if raw.startswith(b"tree\n"):
        text = raw.decode()
        if int(_field(text, "num_tree_per_iteration")) > 1:
            raise FileFormatError(path, 0, _ONE_SCORE)
        names = _field(text, "feature_names").split()
        unnamed = all(map(_UNNAMED.fullmatch, names))
        return _TreeFile(text, len(names), () if unnamed else tuple(names))
    try:
        model = json.loads(raw)
    except ValueError:  # also if it is not UTF-8
        model = None
    if not isinstance(model, dict) or "learner" not in model:
        raise FileFormatError(
            path, 0, "expected a model of LightGBM (save_model) or XGBoost (in JSON: save_model('model.json'))"
        )
    return _from_xgboost(model["learner"], path)


def _from_xgboost(learner: Mapping[str, Any], path: str | os.PathLike[str]) -> _TreeFile:
    booster = learner["gradient_booster"]
    counts = learner["learner_model_param"]
    several = max(int(counts.get("num_target", "1")), int(counts.get("num_class", "0"))) > 1
    if booster.get("name") != "gbtree" or several:
        raise FileFormatError(path, 0, _ONE_SCORE)
    model = booster["model"]
    trees = model["trees"]
    if any(any(tree.get("split_type", ())) for tree in trees):
        raise FileFormatError(path, 0, "kinrank reads no categorical splits: encode the feature as numbers")
    best = learner.get("attributes", {}).get("best_iteration")
    if best is not None:
        trees = trees[: (int(best) + 1) * int(model["gbtree_model_param"].get("num_parallel_tree", "1"))]
    n_features = int(learner["learner_model_param"]["num_feature"])
    head = [
        "tree",
        "version=v4",
        "num_class=1",
        "num_tree_per_iteration=1",
        "label_index=0",
        f"max_feature_idx={n_features - 1}",
        *_columns(n_features),
        "",
    ]
    body = [line for number, tree in enumerate(trees) for line in (f"Tree={number}", *_tree_lines(tree), "")]
    return _TreeFile(
        "\n".join([*head, *body, "end of trees", ""]), n_features, tuple(learner.get("feature_names") or ())
    )


def _tree_lines(tree: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of one tree. LightGBM counts splits and leaves separately; a leaf is ``~number``."""
    left, right = np.array(tree["left_children"]), np.array(tree["right_children"])
    used = _reachable(left, right)  # pruned nodes stay in the file
    is_leaf, is_split = used & (left < 0), used & (left >= 0)
    number = np.where(is_leaf, ~(np.cumsum(is_leaf) - 1), np.cumsum(is_split) - 1)
    splits = np.flatnonzero(is_split)
    conditions = np.array(tree["split_conditions"], dtype=np.float32)
    cover = np.maximum(np.round(tree["sum_hessian"]), 1).astype(np.int64)
    fields: dict[str, Any] = {"num_leaves": [int(is_leaf.sum())], "num_cat": [0]}
    if len(splits):
        default_left = np.array(tree["default_left"])[splits].astype(bool)
        fields |= {
            "split_feature": np.array(tree["split_indices"])[splits],
            "split_gain": np.array(tree["loss_changes"], dtype=np.float64)[splits],
            "threshold": np.nextafter(conditions[splits], np.float32(-np.inf)).astype(np.float64),
            "decision_type": _MISSING_IS_NAN + _DEFAULT_LEFT * default_left,
            "left_child": number[left[splits]],
            "right_child": number[right[splits]],
        }
    fields["leaf_value"] = conditions[is_leaf].astype(np.float64)
    if len(splits):
        fields |= {
            "leaf_weight": cover[is_leaf],
            "leaf_count": cover[is_leaf],
            "internal_value": np.array(tree["base_weights"], dtype=np.float64)[splits],
            "internal_weight": cover[splits],
            "internal_count": cover[splits],
        }
    fields |= {"is_linear": [0], "shrinkage": [1]}
    for name, values in fields.items():
        yield f"{name}={' '.join(map(repr, np.asarray(values).tolist()))}"


def _reachable(left: Int64, right: Int64) -> NDArray[np.bool_]:
    """Return which nodes of a tree can be reached from its root."""
    used = np.zeros(len(left), dtype=bool)
    level = np.zeros(1, dtype=np.int64)
    while len(level):
        used[level] = True
        split = level[left[level] >= 0]
        level = np.concatenate([left[split], right[split]])
    return used


def _columns(n_features: int) -> Iterator[str]:
    """Yield the lines that list features without names."""
    yield "feature_names=" + " ".join(f"Column_{column}" for column in range(n_features))
    yield "feature_infos=" + " ".join(["[-inf:inf]"] * n_features)


def check_trees(text: str) -> str:
    """Return trees in LightGBM's text format as LightGBM can read them, whatever they were changed to.

    LightGBM trusts such a text: it ends the process if a field is missing, and reads and writes beyond its arrays if a
    number is too large. The sizes of the trees are left out, by which it would find them without looking.

    Raises
    ------
    DataError
        If a field is missing or unknown, has too many numbers, or refers to a feature, a split or a leaf that there is
        not.
    """
    trees, end, tail = text.partition("\nend of trees\n")
    if not (text.startswith("tree\n") and end and _TAIL.fullmatch(tail)):
        raise DataError("the trees are not whole from the first line to the last: write the model again")
    head, *blocks = re.split(r"(?m)^Tree=(?=\d+$)", trees)
    fields = _read_fields("the head of the trees", head.removeprefix("tree\n"), _HEAD)
    for name in ("version", "num_class", "num_tree_per_iteration", "label_index", "feature_names", "feature_infos"):
        if name not in fields:
            raise DataError(f"the trees have no {name}: write the model again")
    n_features = _whole("max_feature_idx", fields.get("max_feature_idx", "")) + 1
    for name in ("feature_names", "feature_infos"):
        if len(fields[name].split()) != n_features:
            raise DataError(f"the trees read {n_features} features, and have {len(fields[name].split())} {name}")
    if (fields["num_class"], fields["num_tree_per_iteration"]) != ("1", "1"):
        raise DataError(f"the trees have several scores for a row: {_ONE_SCORE}")
    for number, block in enumerate(blocks):
        first, _, rest = block.partition("\n")
        if first != str(number):
            raise DataError(f"tree {number} is numbered {first}: write the model again")
        _check_tree(f"tree {number}", _read_fields(f"tree {number}", rest), n_features)
    return re.sub(r"(?m)^tree_sizes=.*\n", "", text, count=1)


def _check_tree(tree: str, fields: Mapping[str, str], n_features: int) -> None:
    """Raise `DataError` unless the fields are those of a tree over these features."""
    n_leaves = _whole("num_leaves", fields.get("num_leaves", ""))
    if n_leaves < 1:
        raise DataError(f"{tree} has {n_leaves} leaves: write the model again")
    for kinds, size in ((_OF_SPLITS, n_leaves - 1), (_OF_LEAVES, n_leaves), (_OF_TREE, 1)):
        for name, kind in kinds.items():
            words = fields.get(name, "").split()
            if n_leaves == 1 and not words and name not in _NEEDED:  # LightGBM writes them so
                continue
            if (name in fields or (name in _NEEDED and size)) and len(words) != size:
                raise DataError(f"{tree} has {len(words)} numbers of {name}, expected {size}: write the model again")
            wrong = [word for word in words if not kind.fullmatch(word)]
            if wrong:
                raise DataError(f"{tree} has {wrong[0][:50]!r} as {name}: write the model again")
    if _whole("num_cat", fields["num_cat"]) or any(int(word) & 1 for word in fields.get("decision_type", "").split()):
        raise ParameterError("kinrank does not evaluate trees with categorical splits: encode the feature as numbers")
    if fields.get("is_linear", "0") != "0":
        raise ParameterError("kinrank evaluates boosted trees with constant leaves: drop linear_tree")
    if n_leaves == 1:
        return
    features = [int(word) for word in fields["split_feature"].split()]
    if not all(0 <= feature < n_features for feature in features):
        wrong_feature = next(feature for feature in features if not 0 <= feature < n_features)
        raise DataError(f"{tree} reads feature {wrong_feature}, and there are {n_features}: write the model again")
    if not all(0 <= int(word) < 1 << 7 for word in fields["decision_type"].split()):
        raise DataError(f"{tree} has an unknown decision_type: write the model again")
    children = [[int(word) for word in fields[name].split()] for name in ("left_child", "right_child")]
    # Every split but the first, and every leaf, has one parent, and that comes before it: so there is no circle.
    below = sorted(children[0] + children[1])
    follow = all(child < 0 or child > split for side in children for split, child in enumerate(side))
    if below != [*range(-n_leaves, 0), *range(1, n_leaves - 1)] or not follow:
        raise DataError(f"{tree} has splits or leaves without one parent: write the model again")


def _read_fields(
    where: str, text: str, known: Collection[str] = (*_OF_SPLITS, *_OF_LEAVES, *_OF_TREE)
) -> dict[str, str]:
    """Return the values of lines ``name=value`` by name."""
    fields: dict[str, str] = {}
    for line in filter(None, text.split("\n")):
        name, equals, value = line.partition("=")
        if not equals or name not in known or name in fields or "=" in value:
            raise DataError(f"{where} must not have the line {line[:50]!r}: write the model again")
        fields[name] = value
    return fields


def _whole(name: str, value: str) -> int:
    if not _WHOLE.fullmatch(value):
        raise DataError(f"the trees have {value[:50]!r} as {name}: write the model again")
    return int(value)


def _field(text: str, name: str) -> str:
    match = re.search(rf"(?m)^{name}=(.*)$", text)
    if match is None:
        raise DataError(f"a model of LightGBM has a line {name}=, this one has none")
    return match[1]


def _over_columns(text: str, column_of: Sequence[int], n_features: int) -> str:
    """Return trees that read feature i in column ``column_of[i]`` of `n_features`."""

    def moved(match: re.Match[str]) -> str:
        return "split_feature=" + " ".join(str(column_of[int(feature)]) for feature in match[1].split())

    names, infos = _columns(n_features)
    for pattern, line in (
        (r"tree_sizes=.*\n", ""),  # in bytes, which change; LightGBM reads files without it
        (r"max_feature_idx=.*", f"max_feature_idx={n_features - 1}"),
        (r"feature_names=.*", names),
        (r"feature_infos=.*", infos),
        (r"(?:monotone_constraints|feature_importances)=.*\n", ""),
    ):
        text = re.sub(rf"(?m)^{pattern}", line, text, count=1)
    return re.sub(r"(?m)^split_feature=(.*)$", moved, text)


# --- fast evaluation of LightGBM's trees, equal to `lightgbm.Booster.predict` in every bit ----------------------------


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
