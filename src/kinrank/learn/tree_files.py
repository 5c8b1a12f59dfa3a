"""Read boosted trees that LightGBM or XGBoost has saved, as LightGBM's text format.

XGBoost sends a value left if it is *below* a split's condition, LightGBM if it is *not above* the threshold. Values are
float32, so both agree if the threshold is the next smaller float32. XGBoost adds up leaves in float32 and starts from
its base score; here they are summed in float64 without it. So scores differ by a constant and by rounding.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Int64
from kinrank.errors import DataError, FileFormatError
from kinrank.registry import import_extra

_DEFAULT_LEFT, _MISSING_IS_NAN = 2, 8  # bits of LightGBM's decision_type
_ONE_SCORE = "expected trees with one score for a row: train with one target, not several classes, and booster='gbtree'"
_UNNAMED = re.compile(r"Column_\d+")


@dataclass(frozen=True)
class TreeFile:
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


def read_trees(path: str | os.PathLike[str]) -> TreeFile:
    """Read a model file of LightGBM (text) or XGBoost (JSON; other formats need the package ``xgboost``).

    An XGBoost model with early stopping has its trees up to the best iteration, as in ``XGBRanker.predict``.
    """
    raw = Path(path).read_bytes()
    if raw.startswith(b"tree\n"):
        text = raw.decode()
        if int(_field(text, "num_tree_per_iteration")) > 1:
            raise FileFormatError(path, 0, _ONE_SCORE)
        names = _field(text, "feature_names").split()
        unnamed = all(map(_UNNAMED.fullmatch, names))
        return TreeFile(text, len(names), () if unnamed else tuple(names))
    try:
        model = json.loads(raw)
    except ValueError:  # also if it is not UTF-8
        model = _read_by_xgboost(path)
    if not isinstance(model, dict) or "learner" not in model:
        raise FileFormatError(
            path, 0, "expected a model of LightGBM (save_model) or XGBoost (save_model, .json or .ubj)"
        )
    return _from_xgboost(model["learner"], path)


def _read_by_xgboost(path: str | os.PathLike[str]) -> Any:
    xgboost = import_extra("xgboost", "xgboost")
    try:
        raw = xgboost.Booster(model_file=os.fspath(path)).save_raw("json")
    except xgboost.core.XGBoostError:
        return None
    return json.loads(bytes(raw))


def _from_xgboost(learner: Mapping[str, Any], path: str | os.PathLike[str]) -> TreeFile:
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
    return TreeFile(
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
