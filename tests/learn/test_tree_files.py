"""Trees that LightGBM or XGBoost has saved are used as they are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import lightgbm
import numpy as np
import pytest

import kinrank
from kinrank import KinRanker, QuerySet, SingleRanker
from kinrank import folder as folders
from kinrank.datasets import make_intents
from kinrank.errors import DataError, FileFormatError, KinrankError, ParameterError
from kinrank.learn.lambdamart import LambdaMART
from tests.learn.xgboost_models import FOLDER, NAMES, judged_queries, queries_of_three_intents

SHUFFLED = [3, 0, 2, 1]


@pytest.fixture(scope="module")
def queries() -> QuerySet:
    return judged_queries()


@pytest.fixture(scope="module")
def other_columns(queries: QuerySet) -> QuerySet:
    """The same features in another order, and one more."""
    X = np.column_stack([queries.X[:, SHUFFLED], np.ones(queries.n_rows)])
    return queries.replace(X=X.astype(np.float32), feature_names=(*(NAMES[i] for i in SHUFFLED), "new"))


@pytest.fixture(scope="module")
def folder(queries: QuerySet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Model files with and without names."""
    place = tmp_path_factory.mktemp("models")
    for stem, names in (("named", [*NAMES]), ("unnamed", None)):
        shutil.copy(FOLDER / f"{stem}.json", place)
        options = {"feature_name": [name.replace(" ", "_") for name in NAMES]} if names else {}
        rows = lightgbm.Dataset(queries.X, queries.grades, group=queries.sizes, **options)
        lightgbm.train({"objective": "lambdarank", "verbosity": -1, "num_threads": 1}, rows, 15).save_model(
            place / f"{stem}.txt"
        )
    return place


def ranker_of(file: Path) -> SingleRanker:
    return SingleRanker(f"lambdamart(model={file})")


def test_lightgbm_is_equal_in_every_bit(folder, queries, other_columns):
    booster = lightgbm.Booster(model_file=folder / "named.txt")
    assert np.array_equal(
        ranker_of(folder / "named.txt").fit(other_columns).predict(other_columns), booster.predict(queries.X)
    )
    assert np.array_equal(ranker_of(folder / "unnamed.txt").fit(queries).predict(queries), booster.predict(queries.X))


@pytest.mark.parametrize("name", ["named", "unnamed", "pruned"])
def test_xgboost_is_equal_to_single_precision_up_to_its_base_score(name, queries, other_columns):
    wanted = np.load(FOLDER / "scores.npz")[name]
    data = other_columns if name == "named" else queries
    difference = ranker_of(FOLDER / f"{name}.json").fit(data).predict(data) - wanted
    assert np.ptp(difference) < 1e-5 * np.ptp(wanted)


def test_xgboost_stops_at_the_best_iteration(folder, queries):
    record = json.loads((folder / "unnamed.json").read_text())
    record["learner"]["attributes"]["best_iteration"] = "4"
    (folder / "stopped.json").write_text(json.dumps(record))
    learner = LambdaMART(model=str(folder / "stopped.json")).fit(queries)
    assert learner.n_trees_ == 5
    shap = learner.contributions(queries.X).sum(axis=1)
    np.testing.assert_allclose(shap, learner.predict(queries.X), atol=1e-9)


def test_saved_ranker_does_not_need_the_file(folder, queries, tmp_path):
    file = tmp_path / "model.txt"
    file.write_bytes((folder / "named.txt").read_bytes())
    ranker = ranker_of(file).fit(queries)
    ranker.save(tmp_path / "saved", examples=queries[:3])
    file.unlink()
    assert np.array_equal(kinrank.load(tmp_path / "saved").predict(queries), ranker.predict(queries))
    with pytest.raises(FileNotFoundError, match=r"model\.txt"):
        ranker_of(file).fit(queries)


@pytest.mark.parametrize(
    ("file", "names", "message"),
    [
        (
            "named.txt",
            ("title", "body", "age", "votes"),
            "'year_of_release', which is not among the features title, body",
        ),
        ("named.json", ("a", "b", "c", "d"), r"'title'.*\(4 of 4 are missing\)"),
        ("unnamed.txt", (*NAMES, "new"), "read 4 features without names, got 5"),
    ],
)
def test_other_features_are_refused(file, names, message, folder, queries):
    X = np.zeros((queries.n_rows, len(names)), dtype=np.float32)
    with pytest.raises(DataError, match=message):
        ranker_of(folder / file).fit(queries.replace(X=X, feature_names=names))


def test_files_of_another_kind_are_refused(folder, queries, tmp_path):
    (tmp_path / "notes.txt").write_text("no model")
    with pytest.raises(FileFormatError, match="expected a model of LightGBM"):
        ranker_of(tmp_path / "notes.txt").fit(queries)
    record = json.loads((folder / "unnamed.json").read_text())
    record["learner"]["gradient_booster"]["name"] = "gblinear"
    (tmp_path / "linear.json").write_text(json.dumps(record))
    with pytest.raises(FileFormatError, match="booster='gbtree'"):
        ranker_of(tmp_path / "linear.json").fit(queries)
    (tmp_path / "binary.ubj").write_bytes(b"{L\x00\x00\x00\x00\x00\x00\x00\x07learner{")
    with pytest.raises(FileFormatError, match=r"save_model\('model\.json'\)"):
        ranker_of(tmp_path / "binary.ubj").fit(queries)


@pytest.mark.parametrize("file", ["trees.txt", "trees.json"])
def test_kin_ranks_with_given_trees(file, tmp_path):
    """The blend of weak trees with local models is better than these trees, and is saved without the file."""
    queries = queries_of_three_intents()
    earlier, train, test = queries[:60], queries[60:200], queries[200:]
    if file.endswith("txt"):
        settings = {"objective": "lambdarank", "verbosity": -1, "num_threads": 1}
        rows = lightgbm.Dataset(earlier.X, label=earlier.grades, group=earlier.sizes)
        lightgbm.train(settings, rows, 20).save_model(tmp_path / file)
    else:
        shutil.copy(FOLDER / "weak.json", tmp_path / file)
    alone = ranker_of(tmp_path / file).fit(train)
    kin = KinRanker(30, trees=f"lambdamart(model={tmp_path / file})", settings={"n_repeats": 1}).fit(train)
    assert len(kin.members_) == 1
    assert kin.record_["trees"] == pytest.approx(alone.score(train), abs=0.02)
    assert kin.score(test) > alone.score(test) + 0.02
    explained = kin.explain(test[:2])
    np.testing.assert_allclose(np.concatenate([each.scores for each in explained]), kin.predict(test[:2]), atol=1e-9)
    kin.save(tmp_path / "saved", examples=test[:2])
    (tmp_path / file).unlink()
    assert np.array_equal(kinrank.load(tmp_path / "saved").predict(test), kin.predict(test))


def test_trees_of_kin_must_be_trees():
    with pytest.raises(ParameterError, match="trees must be a LambdaMART"):
        KinRanker(trees="ranksvm").fit(make_intents(10, 0, n_docs=5, n_features=5))


def test_trees_of_several_classes_are_refused(queries: QuerySet, tmp_path: Path):
    rows = lightgbm.Dataset(queries.X, queries.grades)
    settings = {"objective": "multiclass", "num_class": 3, "verbosity": -1, "num_threads": 1}
    lightgbm.train(settings, rows, 2).save_model(tmp_path / "classes.txt")
    for file in (tmp_path / "classes.txt", FOLDER / "classes.json"):
        with pytest.raises(FileFormatError, match="expected trees with one score"):
            ranker_of(file).fit(queries)


@pytest.fixture
def trees(queries: QuerySet) -> str:
    return LambdaMART(n_trees=3, n_leaves=5).fit(queries).text


def changed_model(queries: QuerySet, path: Path, text: str) -> Path:
    """Write a model folder with valid checksums and a changed text of its trees."""
    SingleRanker(LambdaMART(n_trees=3, n_leaves=5)).fit(queries).save(path)
    meta, arrays = folders.read(path, "model")
    [name] = [name for name in arrays if name.endswith("booster")]
    folders.write(path, "model", meta, {**arrays, name: np.frombuffer(text.encode(), dtype=np.uint8)})
    return path


@pytest.mark.parametrize(
    ("pattern", "becomes", "message"),
    [
        (r"split_feature=\d+", "split_feature=4", "tree 0 reads feature 4, and there are 4"),
        (r"split_feature=\d+", "split_feature=-1", "tree 0 reads feature -1, and there are 4"),
        (r"left_child=\S+", "left_child=0", "tree 0 has splits or leaves without one parent"),
        (r"left_child=\S+", "left_child=999999", "tree 0 has splits or leaves without one parent"),
        (r"left_child=\S+", "left_child=99999999999", "tree 0 has '99999999999' as left_child"),
        (r"right_child=\S+", "right_child=-77", "tree 0 has splits or leaves without one parent"),
        (r"num_leaves=5", "num_leaves=500000000", "tree 0 has 4 numbers of split_feature, expected 499999999"),
        (r"leaf_value=\S+ ", "leaf_value=", "tree 0 has 4 numbers of leaf_value, expected 5"),
        (r"threshold=\S+", "threshold=x", "tree 0 has 'x' as threshold"),
        (r"threshold=.*\n", "", "tree 0 has 0 numbers of threshold, expected 4"),
        (r"Tree=1", "Tree=7", "tree 1 is numbered 7"),
        (r"num_cat=0", "num_cat=1", "categorical splits"),
        (r"is_linear=0", "is_linear=1", "constant leaves"),
        (r"max_feature_idx=3", "max_feature_idx=1", "the trees read 2 features, and have 4 feature_names"),
        (r"objective=lambdarank", "objective=nothing", "LightGBM cannot read the trees"),
        (r"(?s)\[verbosity.*", "[ver", "the trees are not whole from the first line to the last"),
        (r"(?s)Tree=1.*", "", "the trees are not whole"),
        (r"(?s).*", "", "the trees are not whole"),
    ],
)
def test_changed_trees_of_a_model_are_refused(pattern, becomes, message, trees, queries, tmp_path):
    text, n = re.subn(pattern, becomes, trees, count=1)
    assert n == 1
    with pytest.raises(KinrankError, match=message):
        kinrank.load(changed_model(queries, tmp_path / "model", text))


def test_sizes_of_trees_that_are_wrong_do_not_matter(trees, queries, tmp_path):
    text = re.sub("tree_sizes=.*", "tree_sizes=7 9999999 -4", trees)
    ranker = kinrank.load(changed_model(queries, tmp_path / "model", text))
    assert np.array_equal(ranker.predict(queries), lightgbm.Booster(model_str=trees).predict(queries.X))


MUTANTS = """
import random, re, sys
import numpy as np
from lightgbm.basic import LightGBMError
from kinrank.errors import KinrankError
from kinrank.learn.lambdamart import LambdaMART

text = open(sys.argv[1]).read()
X = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
draw = random.Random(0)
refused = 0
for _ in range(1000):
    start = draw.randrange(len(text))
    number = draw.choice(list(re.finditer(r"-?[0-9]+", text)))
    kind = draw.randrange(3)
    if kind == 0:
        changed = text[:start] + draw.choice("0123456789-=. \\nabe\\0") + text[start + 1 :]
    elif kind == 1:
        changed = text[:start] + text[start + draw.randrange(1, 60) :]
    else:
        changed = text[: number.start()] + str(draw.choice([-99, -1, 0, 7, 99, 2**31, 2**40])) + text[number.end() :]
    model = LambdaMART()
    try:
        model.set_state({"booster": np.frombuffer(changed.encode(), dtype=np.uint8)})
        model.predict(X), model.contributions(X)
    except (KinrankError, LightGBMError):
        refused += 1
print(refused)
"""


def test_no_changed_text_ends_the_process(trees, tmp_path):
    """LightGBM reads beyond its arrays, or ends the process, if it gets a text that it has not written."""
    (tmp_path / "trees.txt").write_text(trees)
    command = [sys.executable, "-c", MUTANTS, str(tmp_path / "trees.txt")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert 300 < int(done.stdout.split()[-1]) < 1000
