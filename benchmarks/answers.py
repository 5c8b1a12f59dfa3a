"""Which answer does a question want: `Memory` next to the nearest known questions that vote, on public benchmarks.

BANKING77, CLINC150 and the three assistants of HINT3 (`data/real/intents`): each training question is taught once with
its answer, by nobody in particular, and each test question is asked once, without a retriever. *Silence* is the area
under the curve of the score of the first answer: a test question that has an answer against one that has none (1 is
perfect). BANKING77 has no question without an answer.

- *voting*: the 20 nearest known questions vote, each with its similarity to a power: by letters (TF-IDF of character
  n-grams), by the cosine of vectors, and by half of the letters and the cosine. Its mixture and its power, 4, 8 or 16,
  are those that answer most training questions right, up to 2,000 of them, each without itself.
- *nearest*: the answer of the nearest known question by vectors.
- *Memory, letters* and *Memory, MiniLM*: with its defaults, and with vectors.

*Left out*: the prior of agreement of `Memory` is fitted to the training questions of the other collections, and to
those of an FAQ, a site search and the tools of an assistant. p is that of McNemar's exact test against the chosen
voting.

``--encoder static`` uses WordLlama. ``--part trained`` trains a `KinRanker` on a memory of BANKING77 with
``Memory.train``, with a retriever that returns all answers without scores. ``--part prior`` prints the prior of
agreement that is fitted to all training questions. ``--part opposites``: the pairs of opposites, codes and versions of
``tests/memory/opposites.toml``. Both sides are taught once by one person; or one side by up to five, with a retriever
that has the cosine of a question with the text that each side is taught with.
"""

from __future__ import annotations

import csv
import gzip
import json
import time
import tomllib
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from scipy.optimize import minimize
from scipy.stats import binomtest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import roc_auc_score

from benchmarks.common import data_dir, log_progress
from benchmarks.memory_collections import relevant
from benchmarks.memory_meaning import encoded
from kinrank import KinRanker, Memory
from kinrank.arrays import Float32, Float64, Int64
from kinrank.memory import agreement
from kinrank.memory.ledger import Entry, Said
from kinrank.memory.memory import VOTES
from kinrank.memory.snapshot import TAUGHT

OPTIONS = {
    "part": ("all", "trained", "prior", "opposites"),
    "collection": "banking77,clinc150,curekart,powerplay11,sofmattress",
    "encoder": ("MiniLM", "static"),
    "most": "100000",
}
_MORE = ("stackfaq", "govuk", "metatool")  # collections that also teach the prior of agreement
_JUDGED = 4_000
_NEAREST, _POWERS, _HELD_OUT, _AT_ONCE = 20, (4, 8, 16), 2_000, 500
_MIXTURES = {"letters": (1.0, 0.0), "vectors": (0.0, 1.0), "letters / 2 + vectors": (0.5, 1.0)}
_GROWTH = 20  # transactions have a twentieth of what is known
_NONE = {"banking77": "", "clinc150": "oos"}  # what the questions without an answer are called; HINT3: below


@dataclass(frozen=True, eq=False)
class Intents:
    """Training and test questions with their answers; a test question without one has -1."""

    name: str
    known: list[str]
    asked: list[str]
    names: list[str]
    answer: Int64
    wanted: Int64
    vectors: Float32
    asked_vectors: Float32


@cache
def intents(name: str, encoder: str, most: int = 10**9) -> Intents:
    """Read a collection with vectors; at most so many test questions."""
    folder = data_dir() / "real" / "intents"
    if name == "clinc150":
        with gzip.open(folder / "clinc150.json.gz", "rt") as file:
            parts = json.load(file)
        train, test = parts["train"], parts["test"] + parts["oos_test"]
    else:
        train, test = (_rows(folder / f"{name.removesuffix('77')}_{part}.csv") for part in ("train", "test"))
    names, answer = np.unique([row[1] for row in train], return_inverse=True)
    number = {each: place for place, each in enumerate(names.tolist())}
    none = _NONE.get(name, "NO_NODES_DETECTED")
    known, asked = ([row[0] for row in part] for part in (train, test))
    wanted = np.array([-1 if row[1] == none else number.get(row[1], len(names)) for row in test])
    vectors = [encoded(f"{name}-{part}", encoder, each) for part, each in (("train", known), ("test", asked))]
    some = np.sort(np.random.default_rng(0).permutation(len(asked))[:most])
    own = [asked[place] for place in some]
    return Intents(name, known, own, names.tolist(), answer, wanted[some], vectors[0], vectors[1][some])


@cache
def judged(name: str, encoder: str) -> Intents:
    """Read questions with their relevant documents, as further training questions for the prior of agreement."""
    documents = relevant(name)
    questions, wanted = list(documents), [" ".join(sorted(grades)) for grades in documents.values()]
    vectors = encoded(f"{name}-questions", encoder, questions)
    some = np.sort(np.random.default_rng(0).permutation(len(questions))[:_JUDGED])
    names, answer = np.unique([wanted[place] for place in some], return_inverse=True)
    known = [questions[place] for place in some]
    return Intents(name, known, [], names.tolist(), answer, np.empty(0, np.int64), vectors[some], vectors[:0])


def _rows(path: Any) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.reader(lines))[1:]


# --- rivals ----------------------------------------------------------------------------------------------------------


class Similar:
    """The similarity of questions to all known ones, by letters and by vectors."""

    def __init__(self, data: Intents) -> None:
        self.vectors = data.vectors
        self._counted = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True).fit(data.known)
        self._known = self._counted.transform(data.known).astype(np.float32).T.tocsc()

    def __call__(self, texts: list[str], vectors: Float32) -> tuple[Float32, Float32]:
        """Return both similarities, a row for each text."""
        letters = (self._counted.transform(texts).astype(np.float32) @ self._known).toarray()
        return letters, vectors @ self.vectors.T


def votes(similar: Float32, answer: Int64, power: float) -> Float64:
    """Return the votes for each answer of the nearest known questions of each row."""
    near = np.argpartition(-similar, _NEAREST, axis=1)[:, :_NEAREST]
    weight = np.maximum(np.take_along_axis(similar, near, 1), 0) ** power
    found = np.zeros((len(similar), answer.max() + 1))
    np.add.at(found, (np.arange(len(similar))[:, None], answer[near]), weight)
    return found


def chosen_voting(data: Intents, similar: Similar) -> tuple[str, float]:
    """Return the mixture and the power that are best on training questions, each without itself."""
    some = np.sort(np.random.default_rng(0).permutation(len(data.known))[:_HELD_OUT])
    right = dict.fromkeys(((mixture, power) for mixture in _MIXTURES for power in _POWERS), 0)
    for start in range(0, len(some), _AT_ONCE):
        own = some[start : start + _AT_ONCE]
        both = similar([data.known[place] for place in own], data.vectors[own])
        for mixture, power in right:
            mixed = sum(part * each for part, each in zip(_MIXTURES[mixture], both, strict=True))
            mixed[np.arange(len(own)), own] = -1.0
            right[mixture, power] += int((votes(mixed, data.answer, power).argmax(1) == data.answer[own]).sum())
    log_progress(f"{data.name}: voting on {len(some):,} training questions {right}")
    return max(right, key=right.__getitem__)


def voting(data: Intents, similar: Similar) -> dict[str, tuple[Int64, Float64]]:
    """Return first answers and their scores: of the chosen voting, of all others, and of the nearest question."""
    chosen = chosen_voting(data, similar)
    found: dict[str, list[tuple[Int64, Float64]]] = {}
    for start in range(0, len(data.asked), _AT_ONCE):
        both = similar(data.asked[start : start + _AT_ONCE], data.asked_vectors[start : start + _AT_ONCE])
        for mixture, parts in _MIXTURES.items():
            mixed = sum(part * each for part, each in zip(parts, both, strict=True))
            for power in _POWERS:
                counted = votes(mixed, data.answer, power)
                found.setdefault(f"voting, {mixture}, power {power}", []).append((counted.argmax(1), counted.max(1)))
        found.setdefault("nearest", []).append((data.answer[both[1].argmax(1)], both[1].max(1)))
    whole = {name: tuple(np.concatenate(each) for each in zip(*parts, strict=True)) for name, parts in found.items()}
    return {"voting": whole["voting, {}, power {}".format(*chosen)], **whole}


# --- memory ----------------------------------------------------------------------------------------------------------


def taught(data: Intents, *, vectors: bool) -> Memory:
    """Return a memory that was taught the training questions."""
    memory = Memory(":memory:")
    said = [[Said(name, "chosen", *VOTES["chosen"])] for name in data.names]
    start, end = 0, len(data.known)
    while start < end:  # in transactions that grow, which is faster than `learn` and differs in nothing else
        stop, entries = min(start + max(1, start // _GROWTH), end), []
        for place in range(start, stop):
            text, vector = data.known[place], data.vectors[place] if vectors else None
            kin = memory._compared(text, vector)
            own = None if vector is None else vector.tobytes()
            entries.append(Entry(text, TAUGHT - 1 - place, said[data.answer[place]], vector=own, kin=kin))
        memory._ledger.append_all("", entries)
        memory._follow(wait=True)
        start = stop
    return memory


def recalled(data: Intents, memory: Memory, *, vectors: bool) -> tuple[Int64, Float64]:
    """Return the first answers of a memory, and their scores."""
    number = {name: place for place, name in enumerate(data.names)}
    first, score = np.full(len(data.asked), -2), np.zeros(len(data.asked))
    for place, text in enumerate(data.asked):
        hits = memory.recall(text, 1, vector=data.asked_vectors[place] if vectors else None)
        for hit in hits:
            first[place], score[place] = number[str(hit.id)], hit.score
    return first, score


@cache
def pairs_of(data: Intents, *, vectors: bool) -> tuple[Float64, Float64, Any, Float64, Float64]:
    """Return the features of pairs of training questions, whether they agree, and how much each counts.

    Each of 2,000 questions has others, the 20 nearest by letters and, with vectors, by these, whose weights sum to one.
    """
    similar = _similar(data)
    marks = np.array([agreement.marks(text) for text in data.known])
    some = np.sort(np.random.default_rng(1).permutation(len(data.known))[:_HELD_OUT])
    columns: list[list[Any]] = [[], [], [], [], []]
    for start in range(0, len(some), _AT_ONCE):
        own = some[start : start + _AT_ONCE]
        letters, cosine = similar([data.known[place] for place in own], data.vectors[own])
        for row, place in enumerate(own):
            letters[row, place] = cosine[row, place] = -1.0
            near = np.union1d(
                *(np.argpartition(-each[row], 20)[:20] for each in ([letters, cosine] if vectors else [letters] * 2))
            )
            weight = np.full(len(near), 1.0 / len(near))
            values = letters[row, near], np.maximum(cosine[row, near], 0.0), marks[near] != marks[place]
            for column, each in zip(columns, (*values, data.answer[near] == data.answer[place], weight), strict=True):
                column.append(each)
    letters, cosine, differ, same, weight = (np.concatenate(column).astype(np.float64) for column in columns)
    return letters, cosine, differ, same, weight


@lru_cache(1)
def _similar(data: Intents) -> Similar:
    return Similar(data)


def prior_of(collections: list[Intents], *, vectors: bool) -> tuple[float, ...]:
    """Return the coefficients of agreement that fit pairs of questions of collections, each of which counts alike."""
    parts = [pairs_of(data, vectors=vectors) for data in collections]
    letters, cosine, differ, same = (np.concatenate([part[place] for part in parts]) for place in range(4))
    weight = np.concatenate([part[4] / part[4].sum() for part in parts]) * 1_000
    X = np.column_stack([np.ones(len(letters)), letters, *([cosine, cosine**2] if vectors else [letters**2]), differ])

    def loss(found: Float64) -> tuple[float, Float64]:
        odds = X @ found
        p = 1.0 / (1.0 + np.exp(-odds))
        return float(weight @ (np.logaddexp(0.0, odds) - same * odds)), X.T @ (weight * (p - same))

    more = (0.0, None)  # what is more alike agrees at least as often, and what differs at most
    bounds = [(None, None), *[more] * (X.shape[1] - 2), (None, 0.0)]
    found = minimize(loss, np.zeros(X.shape[1]), jac=True, bounds=bounds, method="L-BFGS-B").x
    return tuple(np.round(found, 2).tolist())


# --- parts -----------------------------------------------------------------------------------------------------------


def run(part: str, collection: str, encoder: str, most: str) -> dict[str, Any]:
    """Run one part."""
    if part == "trained":
        return trained(intents("banking77", encoder, int(most)))
    if part == "opposites":
        return opposites(encoder)
    collections = [intents(name, encoder, int(most)) for name in collection.split(",")]
    more = [judged(name, encoder) for name in _MORE]
    if part == "prior":
        kind = agreement.STATIC if encoder == "static" else agreement.MEANING
        return {name: prior_of([*collections, *more], vectors=name == kind) for name in (agreement.LETTERS, kind)}
    return {"rows": [row for data in collections for row in answers(data, [*collections, *more], encoder)]}


def answers(data: Intents, collections: list[Intents], encoder: str) -> list[dict[str, Any]]:
    """Return the figures of all systems on a collection."""
    found = voting(data, _similar(data))
    kind = agreement.STATIC if encoder == "static" else agreement.MEANING
    others = [each for each in collections if each is not data]
    left_out = {name: prior_of(others, vectors=name == kind) for name in (agreement.LETTERS, kind)}
    log_progress(f"{data.name}: prior of the others {left_out}")
    for vectors in (False, True):
        start = time.perf_counter()
        with mock.patch("kinrank.memory.memory.MEANING", kind):
            memory = taught(data, vectors=vectors)
        name = f"Memory, {encoder if vectors else 'letters'}"
        for suffix, prior in (("", {}), (", left out", left_out)):
            with mock.patch.dict(agreement.PRIORS, prior):
                memory._n_compared = -1  # learn agreement again
                memory._learn_agreement()
                found[name + suffix] = recalled(data, memory, vectors=vectors)
            log_progress(f"{data.name}: {time.perf_counter() - start:.0f} s, learned {memory._agreement}")
    return [figures(data, name, *each, found["voting"][0]) for name, each in found.items()]


def figures(data: Intents, name: str, first: Int64, score: Float64, rival: Int64) -> dict[str, Any]:
    """Return accuracy and silence of a system, and the p of its difference to the chosen voting."""
    inside = data.wanted >= 0
    right, other = (each[inside] == data.wanted[inside] for each in (first, rival))
    won, lost = int((right & ~other).sum()), int((other & ~right).sum())
    row = {
        "collection": data.name,
        "system": name,
        "accuracy": round(float(right.mean()), 4),
        "p": float(f"{binomtest(won, won + lost).pvalue:.2g}") if won + lost else 1.0,
        "silence": None if inside.all() else round(float(roc_auc_score(inside, score)), 4),
    }
    log_progress(f"{row}")
    return row


def pairs_of_opposites() -> list[dict[str, list[str]]]:
    """Read the pairs of questions that look alike and want different answers."""
    text = (Path(__file__).parents[1] / "tests" / "memory" / "opposites.toml").read_text(encoding="utf-8")
    found: list[dict[str, list[str]]] = tomllib.loads(text)["pair"]
    return found


def opposites(encoder: str) -> dict[str, Any]:
    """Return how often the right side of a pair comes first."""
    pairs = pairs_of_opposites()
    texts = [text for pair in pairs for own in pair.values() for text in own]
    vectors = dict(zip(texts, encoded("opposites", encoder, texts), strict=True))
    asked = [
        (pair, f"{number}{side}", text)
        for number, pair in enumerate(pairs)
        for side, own in (("a", pair["one"]), ("b", pair["other"]))
        for text in own
    ]
    figures: dict[str, Any] = {}
    for people, sides in ((1, "ab"), (1, "a"), (2, "a"), (5, "a")):
        memory = Memory(":memory:")
        for number, pair in enumerate(pairs):
            for side, text in zip(sides, pair["taught"], strict=False):
                for user in range(people):
                    memory.learn(text, liked=[f"{number}{side}"], user=f"{number} {user}", vector=vectors[text])
        first = {"memory": 0, "retriever": 0}
        for pair, wanted, text in asked:
            names = [wanted[:-1] + side for side in "ab"]
            scores = [float(vectors[taught] @ vectors[text]) for taught in pair["taught"]]
            found = memory.recall(text, 1, vector=vectors[text]) if sides == "ab" else []
            found = found or memory.rerank(text, names, scores, vector=vectors[text])
            first["memory"] += found[0].id == wanted
            first["retriever"] += names[int(np.argmax(scores))] == wanted
        name = "both sides taught" if sides == "ab" else f"one side taught by {people}"
        figures[name] = {system: round(number / len(asked), 4) for system, number in first.items()}
    return figures


def trained(data: Intents) -> dict[str, Any]:
    """Train a `KinRanker` on a memory, and return its accuracy next to that of the memory."""
    memory = taught(data, vectors=True)
    start = time.perf_counter()
    rows = {
        **dict(zip(data.known, data.vectors, strict=True)),
        **dict(zip(data.asked, data.asked_vectors, strict=True)),
    }
    ranker = memory.train(KinRanker(encoder=lambda texts: [rows[text] for text in texts]), lambda _: (data.names, None))
    seconds = time.perf_counter() - start
    queries = memory.to_queries(dict.fromkeys(data.asked, (data.names, None)))
    scores = ranker.predict(queries).reshape(-1, len(data.names))
    number = {text: place for place, text in enumerate(queries.query_columns["text"].tolist())}
    best = scores.argmax(1)[[number[text] for text in data.asked]]
    return {
        "rows": [
            figures(data, "KinRanker", best, scores.max(1), best),
            figures(data, "Memory", *recalled(data, memory, vectors=True), best),
        ],
        "train s": round(seconds, 1),
    }
