from __future__ import annotations

import importlib
import pkgutil
from collections import OrderedDict

import pytest

import kinrank
from kinrank.errors import MissingExtraError, ParameterError
from kinrank.learn import LEARNERS
from kinrank.registry import Registry, import_extra


@pytest.fixture
def mappings() -> Registry:
    return Registry("mapping", {"ordered": "collections:OrderedDict", "lost": "a_module_nobody_has:Lost"})


def test_a_name_leads_to_its_class(mappings):
    assert mappings["ordered"] is OrderedDict


def test_names_are_listed_without_importing(mappings):
    assert list(mappings) == ["ordered", "lost"]
    assert "lost" in mappings
    assert "other" not in mappings


def test_an_unknown_name_lists_the_choices(mappings):
    with pytest.raises(ParameterError, match="unknown mapping 'other': choose one of 'ordered', 'lost'"):
        mappings["other"]


def test_a_class_knows_its_name(mappings):
    assert mappings.name_of(OrderedDict) == "ordered"
    with pytest.raises(ParameterError, match="dict is not a registered mapping"):
        mappings.name_of(dict)


def test_an_extra_that_is_there_is_imported():
    assert import_extra("collections", "any") is importlib.import_module("collections")


def test_an_extra_that_is_missing_has_the_pip_line():
    with pytest.raises(MissingExtraError, match=r"needs a_module_nobody_has.*pip install 'kinrank\[faiss\]'"):
        import_extra("a_module_nobody_has", "faiss")


def test_every_registered_name_in_kinrank_leads_to_its_class_and_back():
    modules = [importlib.import_module(m.name) for m in pkgutil.walk_packages(kinrank.__path__, "kinrank.")]
    registries = {id(v): v for module in modules for v in vars(module).values() if isinstance(v, Registry)}
    assert registries
    for registry in registries.values():
        assert [registry.name_of(registry[name]) for name in registry] == list(registry)


@pytest.mark.parametrize(
    "spec", ["rankrls(0.1)", "rankrls(penalty)", "rankrls(penalty=", "rankrls(lambda_=1)", "rankrls(penalty=print)"]
)
def test_settings_in_text_that_cannot_be_read(spec: str) -> None:
    with pytest.raises(ParameterError, match=r"cannot read learner .*write 'rankrls', or settings as in"):
        LEARNERS.make(spec)


def test_settings_in_text() -> None:
    assert LEARNERS.make("ranksvm(penalty=0.5, loss='hinge')").get_params()["loss"] == "hinge"
    assert LEARNERS.make("ranksvm").get_params()["penalty"] == 0.01
