"""Read boosted trees that LightGBM or XGBoost has saved, as LightGBM's text format.

XGBoost sends a value left if it is *below* a split's condition, LightGBM if it is *not above* the threshold. Values are
float32, so both agree if the threshold is the next smaller float32. XGBoost adds up leaves in float32 and starts from
its base score; here they are summed in float64 without it. So scores differ by a constant and by rounding.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Int64
from kinrank.errors import DataError, FileFormatError, ParameterError
from kinrank.registry import import_extra

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
