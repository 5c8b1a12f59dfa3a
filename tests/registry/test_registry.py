from __future__ import annotations

import importlib
import pkgutil
import re
from collections import OrderedDict
from pathlib import Path

import pytest

import kinrank
from kinrank import load
from kinrank.errors import MissingExtraError, ParameterError
from kinrank.learn import LEARNERS
from kinrank.measure import MEASURES
from kinrank.rankers import RANKERS
from kinrank.registry import Registry, import_extra
from kinrank.store.model import ModelRecord, write_model


@pytest.fixture
def mappings() -> Registry:
    return Registry("mapping", {"ordered": "collections:OrderedDict", "lost": "a_module_nobody_has:Lost"})


def test_name_returns_its_class(mappings):
    assert mappings["ordered"] is OrderedDict


def test_names_are_listed_without_importing(mappings):
    assert list(mappings) == ["ordered", "lost"]
    assert "lost" in mappings
    assert "other" not in mappings


def test_unknown_name_raises_with_the_choices(mappings):
    with pytest.raises(ParameterError, match="unknown mapping 'other': choose one of 'ordered', 'lost'"):
        mappings["other"]


def test_name_of_returns_the_registered_name(mappings):
    assert mappings.name_of(OrderedDict) == "ordered"
    with pytest.raises(ParameterError, match="dict is not a registered mapping"):
        mappings.name_of(dict)


def test_installed_extra_is_imported():
    assert import_extra("collections", "any") is importlib.import_module("collections")


def test_missing_extra_raises_with_the_pip_command():
    with pytest.raises(
        MissingExtraError, match=r"a_module_nobody_has is not installed: pip install '\.\[faiss\]' in a checkout"
    ):
        import_extra("a_module_nobody_has", "faiss")


def test_every_registered_name_returns_its_class_and_back():
    names = [module.name for module in pkgutil.walk_packages(kinrank.__path__, "kinrank.")]
    # scripts/adapters installs what the adapters need.
    modules = [importlib.import_module(name) for name in names if not name.startswith("kinrank.adapters.")]
    registries = {id(v): v for module in modules for v in vars(module).values() if isinstance(v, Registry)}
    assert registries
    for registry in registries.values():
        classes = [name for name in registry if isinstance(registry[name], type)]
        assert [registry.name_of(registry[name]) for name in classes] == classes
        assert len(classes) == len(list(registry)) or registry is MEASURES


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("rankrls(0.1)", "write settings as name=value, got '0.1'"),
        ("rankrls(penalty)", "write settings as name=value, got 'penalty'"),
        ("rankrls(penalty=", r"write name or name\(key=value, ...\)"),
        ("rankrls(penalty=)", "write settings as name=value, got 'penalty='"),
        ("rankrls(penalty=1)x", r"write name or name\(key=value, ...\)"),
        ("rankrls(penalty=(1)", "the brackets do not match"),
        ("rankrls(penalty=1))", "the brackets do not match"),
        ("rankrls(penalty=1, penalty=2)", "'penalty' is set twice"),
        ("rankrls(lambda_=1)", "unknown parameter 'lambda_'. RankRLS takes\n  penalty: float"),
        ("rankrls(penalty=print)", "penalty must be float, got 'print'. RankRLS takes\n  penalty: float"),
    ],
)
def test_invalid_spec_raises(spec: str, message: str) -> None:
    with pytest.raises(ParameterError, match=f"cannot read learner {re.escape(repr(spec))}: {message}"):
        LEARNERS.make(spec)


@pytest.mark.parametrize("text", ["hinge", "'hinge'", '"hinge"', " hinge ,"])
def test_spec_accepts_quoted_and_bare_words(text: str) -> None:
    made = LEARNERS.make(f"ranksvm(penalty=0.5, loss={text})")
    assert made.get_params()["loss"] == "hinge"
    assert made.get_params()["penalty"] == 0.5


def test_spec_without_settings_has_the_defaults() -> None:
    assert LEARNERS.make("ranksvm").get_params()["penalty"] == 0.01
    assert LEARNERS.make(" ranksvm( )").get_params()["penalty"] == 0.01


def test_spec_accepts_keywords_lists_and_nested_specs() -> None:
    ranker = RANKERS.make("knn(prior=global, describe=['mean', 'max'], learner=ranksvm(penalty=0.5, loss=hinge))")
    assert (ranker.prior, ranker.describe) == ("global", ["mean", "max"])
    assert LEARNERS.make(ranker.learner).get_params()["loss"] == "hinge"


def test_model_of_an_unknown_ranker_is_refused(tmp_path: Path) -> None:
    write_model(tmp_path / "model", ModelRecord("precedents", {}, ("a",), "0.1.0", {}))
    with pytest.raises(ParameterError, match="unknown ranker 'precedents': choose one of 'kin'"):
        load(tmp_path / "model")
