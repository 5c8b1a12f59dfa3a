from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from kinrank import KnnRanker, SingleRanker
from kinrank.datasets import make_two_camps
from kinrank.measure import NDCG
from kinrank.study._entrants import evaluate_ranker
from kinrank.study.comparison import compare
from kinrank.study.report import Report, collect, render, write_page
from kinrank.study.report._page import conventions, headline
from tests.study.report.conftest import HOSTILE

MOST_BYTES = 200_000


class Elements(HTMLParser):
    """Collects every start tag with its attributes, and the text of each element."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag != "wbr":  # a place for a break: no element with text
            self._open.append(tag)

    def handle_data(self, data):
        self.texts.append((self._open[-1] if self._open else "", data))

    def of(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def elements(page: str) -> Elements:
    return Elements(page)


def test_headline_is_the_first_heading(page: str, elements: Elements, report: Report):
    difference = report.difference.paired.mean_difference
    against = f"over single(learner='rankrls') on {len(report.names)} queries"
    assert headline(report) == f"Use knn(n_neighbors=60): {difference:+.4f} NDCG@10 {against}"
    assert "".join(text for tag, text in elements.texts if tag == "h1").strip() == headline(report)
    assert next(tag for tag, _ in elements.texts if tag in ("h1", "h2")) == "h1"
    assert f"measured on {len(report.names)} test queries" in page


def test_page_has_all_sections(elements: Elements):
    sections = {attributes["id"] for attributes in elements.of("section")}
    wanted = {"measures", "queries", "features", "method"}
    assert sections == {"answer"} | wanted
    assert [link["href"] for link in elements.of("a")][1:] == [f"#{each}" for each in _in_order(elements, wanted)]


def _in_order(elements: Elements, wanted: set[str]) -> list[str]:
    return [attributes["id"] for attributes in elements.of("section") if attributes["id"] in wanted]


def test_page_loads_nothing(page: str, elements: Elements):
    loading = {"src", "srcset", "data", "poster", "action", "formaction", "background", "xlink:href"}
    for tag, attributes in elements.tags:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "form", "video", "audio", "source"}
        assert not loading & set(attributes), (tag, attributes)
        assert attributes.get("href", "#").startswith("#")
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest|WebSocket|import\(|sendBeacon", page)
    assert re.findall(r"https?://[^\s\"')]+", page) == []


def test_policy_allows_one_style_sheet_and_one_script(page: str, elements: Elements):
    (policy,) = [meta["content"] for meta in elements.of("meta") if "http-equiv" in meta]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not [attributes for _, attributes in elements.tags if "style" in attributes]
    assert not [name for _, attributes in elements.tags for name in attributes if name.startswith("on")]


def test_text_from_the_data_is_escaped(page: str, elements: Elements, report: Report):
    assert elements.of("script") == [{}]
    assert "<script>document" not in page
    assert "<b>reference</b>" not in page
    assert "A <i>generated" not in page
    assert "&lt;i&gt;generated&lt;/i&gt;" in page
    assert report.names[: len(HOSTILE) - 2] == HOSTILE[:-2]
    assert report.names[len(HOSTILE) - 2] == "\u202eright to left [31mcontrol"
    # Every hostile name is in the table of the queries that changed most, as text.
    gains = np.zeros(len(report.names))
    gains[: len(HOSTILE)] = np.arange(len(HOSTILE)) + 1.0
    baseline, subject, *others = report.comparison.entrants
    measure = report.measure
    values = (
        baseline.evaluation.per_query | {measure: np.zeros(len(gains))},
        subject.evaluation.per_query | {measure: gains},
    )
    changed = [
        replace(each, evaluation=replace(each.evaluation, per_query=per_query))
        for each, per_query in zip((baseline, subject), values, strict=True)
    ]
    shown = render(replace(report, comparison=replace(report.comparison, entrants=(*changed, *others))))
    texts = "".join(text for tag, text in Elements(shown).texts if tag == "bdi")
    assert all(name in texts for name in report.names[: len(HOSTILE)])
    assert Elements(shown).of("script") == [{}]


def test_page_is_accessible(elements: Elements):
    ids = Counter(attributes["id"] for _, attributes in elements.tags if "id" in attributes)
    assert set(ids.values()) == {1}
    for attributes in elements.of("svg"):
        assert attributes.get("aria-label") or attributes.get("aria-hidden") == "true"
    for attributes in elements.of("th"):
        assert attributes.get("scope") in {"col", "row", "rowgroup"}
    assert len(elements.of("caption")) == len(elements.of("table"))
    for _, attributes in elements.tags:
        for name in ("aria-labelledby", "aria-describedby"):
            assert attributes.get(name, "headline") in ids


def test_page_has_four_tables_and_one_first_heading(elements: Elements):
    # Measures, gains, losses, features.
    assert len(elements.of("table")) == 4
    order = [tag for tag, _ in elements.tags if tag in ("h1", "h2", "h3")]
    assert order[0] == "h1"
    assert order.count("h1") == 1


def test_page_states_its_size(page: str):
    size = re.search(r"This file is (\d+) KB", page)
    assert size is not None
    assert abs(int(size[1]) - len(page.encode("utf-8", "replace")) / 1000) <= 1


def test_size_of_the_page_does_not_grow_with_the_queries(report: Report):
    rng = np.random.default_rng(0)
    n, name = 20_000, "漢" * 80
    entrants = tuple(
        replace(
            entrant,
            evaluation=replace(
                entrant.evaluation,
                per_query={measure: rng.random(n) for measure in report.comparison.measures},
            ),
        )
        for entrant in report.comparison.entrants
    )
    large = replace(report, comparison=replace(report.comparison, entrants=entrants), names=(name,) * n)
    assert len(render(large).encode()) < MOST_BYTES


def test_page_names_the_conventions_of_measures(page: str, report: Report):
    for measure in report.comparison.measures:
        assert conventions(measure) in page


@pytest.mark.parametrize(
    ("shift", "start"),
    [
        (0.0, "knn(n_neighbors=60) has +0.0001 NDCG@10 on 150 queries, a gain is not shown"),
        (-0.3, "knn(n_neighbors=60) has \u22120.3000 NDCG@10 on 150 queries, that is a loss"),
    ],
)
def test_headline_reports_no_gain_and_loss(report: Report, shift: float, start: str):
    difference = report.difference
    paired = replace(difference.paired, mean_difference=shift or 0.0001, p=0.4 if not shift else 1e-9)
    changed = replace(difference, paired=paired)
    others = tuple(changed if each is difference else each for each in report.comparison.differences)
    shifted = replace(report, answer=None, comparison=replace(report.comparison, differences=others))
    baseline = report.comparison.baseline.name
    assert headline(shifted) == f"Keep {baseline}: {start}"
    title = "".join(text for tag, text in Elements(render(shifted)).texts if tag == "title")
    assert title.strip() == f"A <i>generated</i> world: {headline(shifted)}"


def test_headline_does_not_recommend_what_the_ladder_does_not(report: Report):
    assert report.answer is not None
    gain = replace(report.answer.gain, against="LightGBM", paired=replace(report.difference.paired, p=0.4))
    doubtful = replace(report, answer=replace(report.answer, gain=gain))
    assert headline(doubtful).startswith("knn(n_neighbors=60): +0.")
    assert headline(doubtful).endswith("150 queries, but no gain over LightGBM is shown")


def test_rendering_is_deterministic(page: str, report: Report):
    assert render(report) == page


def test_page_is_written_atomically(tmp_path, page: str, report: Report):
    target = tmp_path / "report.html"
    target.write_text("old content")
    assert write_page(target, report) == target.stat().st_size
    assert target.read_text("utf-8") == page
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def small(ranker, measure, n_test: int = 12) -> Report:
    camps = make_two_camps(n_queries=40 + n_test, seed=0)
    train, test = camps[:40], camps[40:]
    rankers = {"one": SingleRanker("rankrls"), "other": ranker}
    entrants = [evaluate_ranker(name, each.fit(train), test, [measure]) for name, each in rankers.items()]
    return collect(compare(test, entrants))


@pytest.mark.parametrize(
    ("ranker", "absent"),
    [
        (SingleRanker("ranksvm"), {"features"}),
        (KnnRanker(5, learner="lambdamart", prior="none"), {"features"}),
        (KnnRanker(radius=0.5), set()),
    ],
    ids=["no neighbors", "trees", "radius"],
)
def test_parts_without_data_have_no_section(ranker, absent: set[str]):
    elements = Elements(render(small(ranker, NDCG @ 10)))
    sections = {attributes["id"] for attributes in elements.of("section")}
    assert sections == {"answer", "measures", "queries", "features", "method"} - absent


def test_queries_that_the_measure_skips_are_left_out():
    measure = NDCG(no_relevant="skip") @ 10
    report = small(KnnRanker(5), measure, n_test=8)
    queries = report.comparison.queries
    grades = queries.grades.copy()
    grades[: queries.offsets[3]] = 0
    blank = queries.replace(y=grades)
    entrants = [evaluate_ranker(e.name, e.ranker, blank, [measure]) for e in report.comparison.entrants]
    page = render(collect(compare(blank, entrants)))
    assert "measured on 5 test queries" in page
