"""The index of known queries by letters: times, memory and recall up to 10^6 texts, and what one live judgment costs.

The texts are queries and questions of people (mwmbl, MSRD, ACORDAR, LongEval, MetaTool, GOV.UK, BANKING77, HINT3 and
CLINC150). Above their number, further ones are the first half of the words of one and the second half of another one of
the same collection. 200 real texts are asked, which are not known. Recall is the share of the 50 most similar texts, by
the products of all pairs (SciPy), that the index finds; of equally similar ones, any. NDCG@10 is of answers (tools,
intents, pages), by the votes of the 50 most similar texts that have one, weighted by the square of their similarity.

``--part judgment`` measures what it takes a fitted `KinRanker`, and its memory alone, to learn and to forget one judged
query of some 24 movies, with ``--known`` queries known (those of MSRD, and two of their texts joined). The first five
calls do not count.

Times are of CPU.
"""

from __future__ import annotations

import csv
import gzip
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks.common import data_dir, log_progress, memory_mb
from benchmarks.memory_collections import movies
from benchmarks.memory_cost import grown
from kinrank import KinRanker, folder
from kinrank.arrays import GrowingRows
from kinrank.data.texts import TEXT
from kinrank.kin.letters import QueryIndex
from kinrank.learn.lambdamart import LambdaMART
from kinrank.measure import NDCG
from kinrank.memory.columns import QueryMemory
from kinrank.rankers.kin._parts import MemoryPart

OPTIONS = {"part": ("nearest", "judgment"), "known": ("100000", "10000", "1000000"), "asked": ("200", "1000")}
KIN = 50
FITTED, WARM = 2_000, 5


def run(part: str, known: str, asked: str) -> dict[str, object]:
    """Return the figures of one part."""
    return nearest(int(known), int(asked)) if part == "nearest" else judgment(int(known), int(asked))


# --- finding ----------------------------------------------------------------------------------------------------------


def nearest(n_known: int, n_asked: int) -> dict[str, object]:
    """Measure the index."""
    texts, answers, asked, wanted = known_and_asked(n_known, n_asked)
    before = memory_mb("VmRSS")
    start = time.process_time()
    index = QueryIndex().fit(texts)
    built = time.process_time() - start
    resident = memory_mb("VmRSS") - before
    log_progress(f"{len(index):,} texts in {built:.1f} s")
    with tempfile.TemporaryDirectory() as place:
        folder.write(Path(place) / "index", "test", {}, index.get_state())
        stored = sum(file.stat().st_size for file in Path(place).rglob("*") if file.is_file())
        start = time.process_time()
        index = QueryIndex().set_state(folder.read(Path(place) / "index", "test", verify=False)[1])
        opened = time.process_time() - start
        index.nearest(index.describe(asked[:2]), KIN)  # compiles, and reads the files
        places, similarities, seconds = one_by_one(index, asked)
        places, similarities, seconds = one_by_one(index, asked)
        truth, true_similarities, recalls = [], [], []
        for similarity, row in zip(all_pairs(index, asked), places, strict=True):
            best = np.argpartition(-similarity, KIN)[:KIN]
            truth.append(best)
            true_similarities.append(similarity[best])
            recalls.append((similarity[row[row >= 0]] >= similarity[best].min() - 1e-5).sum() / KIN)
        added = [seconds_to_find(index, text) for text in asked[:100]]
        index = index.add(texts[:1])
        grown_by_one = []
        for text in asked:
            start = time.process_time()
            index = index.add([text])
            grown_by_one.append(time.process_time() - start)
    milliseconds = 1000 * np.array(seconds)
    return {
        "known": len(texts),
        "terms per text": round(len(index.terms_.term) / len(index), 1),
        "build s": round(built, 1),
        "open s": round(opened, 3),
        "bytes per text": round(stored / len(texts)),
        "resident bytes per text": round(resident * 2**20 / len(texts)),
        "median ms": round(float(np.median(milliseconds)), 2),
        "p95 ms": round(float(np.quantile(milliseconds, 0.95)), 2),
        "most ms": round(float(milliseconds.max()), 2),
        "recall@50": round(float(np.mean(recalls)), 4),
        "NDCG@10": round(ndcg(places, similarities, answers, wanted), 4),
        "NDCG@10 of all pairs": round(ndcg(truth, true_similarities, answers, wanted), 4),
        "added and found ms": round(1000 * float(np.median(added)), 2),
        "added ms, median and most": [
            round(1000 * float(value), 2) for value in (np.median(grown_by_one), max(grown_by_one))
        ],
    }


def one_by_one(index: QueryIndex, asked: list[str]) -> tuple[list[Any], list[Any], list[float]]:
    """Return places and similarities of the kin of each text, and how long it took, in seconds."""
    places, similarities, seconds = [], [], []
    for text in asked:
        start = time.process_time()
        found = index.nearest(index.describe([text]), KIN)
        seconds.append(time.process_time() - start)
        places.append(found[0][0])
        similarities.append(found[1][0])
    return places, similarities, seconds


def seconds_to_find(index: QueryIndex, text: str) -> float:
    """Return how long it takes until a text that is added is found."""
    start = time.process_time()
    longer = index.add([text])
    _, similarities = longer.nearest(longer.describe([text]), KIN)
    seconds = time.process_time() - start
    if similarities[0, 0] < 0.999:
        raise RuntimeError(f"{text!r} was added and is not found")
    return seconds


def all_pairs(index: QueryIndex, asked: list[str]) -> Iterator[NDArray[np.float32]]:
    """Return the similarities of each text to all that are known."""
    n_buckets = len(index.vocabulary_.idf)
    offsets, term, weight = index.terms_
    table = sp.csr_array((weight, term, offsets), shape=(len(index), n_buckets))
    for text in asked:
        vector = np.zeros(n_buckets, dtype=np.float32)
        own = index.describe([text])
        vector[own.term] = own.weight
        yield table @ vector


def ndcg(places: list[Any], similarities: list[Any], answers: list[str], wanted: list[str]) -> float:
    """Return the mean NDCG@10 of answers that kin vote for, over the texts that want one."""
    values = []
    for row, values_of_row, answer in zip(places, similarities, wanted, strict=True):
        if not answer:
            continue
        votes: dict[str, float] = {}
        for place, similarity in zip(row, values_of_row, strict=True):
            if place >= 0 and answers[place]:
                votes[answers[place]] = votes.get(answers[place], 0.0) + float(similarity) ** 2
        if answer not in votes:
            values.append(0.0)
            continue
        grades = np.array([float(name == answer) for name in votes])
        offsets = np.array([0, len(votes)])
        values.append((NDCG @ 10).mean(np.array(list(votes.values())), grades, offsets))
    return float(np.mean(values))


def known_and_asked(n_known: int, n_asked: int) -> tuple[list[str], list[str], list[str], list[str]]:
    """Return known texts with their answers, and texts to ask with theirs; an answer may be empty."""
    rng = np.random.default_rng(0)
    sources = [[pair for pair in source() if pair[0].strip()] for source in SOURCES]
    pairs = list(dict.fromkeys(pair for source in sources for pair in source))
    order = rng.permutation(len(pairs))
    asked = [pairs[place] for place in order[:n_asked]]
    held_out = {text for text, _ in asked}
    known = [pairs[place] for place in order[n_asked:] if pairs[place][0] not in held_out][:n_known]
    log_progress(f"{len(pairs):,} real texts")
    sources = [[pair for pair in source if pair[0] not in held_out] for source in sources]
    shares = np.array([len(source) for source in sources], dtype=np.float64)
    which = rng.choice(len(sources), n_known - len(known), p=shares / shares.sum())
    draws = rng.random((len(which), 2))
    for source, draw in zip((sources[number] for number in which), draws, strict=True):
        (one, answer), (other, _) = (source[int(share * len(source))] for share in draw)
        first, second = one.split(), other.split()
        known.append((" ".join([*first[: (len(first) + 1) // 2], *second[len(second) // 2 :]]), answer))
    return *map(list, zip(*known, strict=True)), *map(list, zip(*asked, strict=True))  # type: ignore[return-value]


Pairs = Iterator[tuple[str, str]]


def _mwmbl() -> Pairs:
    with gzip.open(data_dir() / "text/mwmbl/queries.jsonl.gz", "rt") as lines:
        yield from ((json.loads(line)["text"], "") for line in lines)


def _msrd() -> Pairs:
    with gzip.open(data_dir() / "text/msrd/movies-judgments.tsv.gz", "rt") as lines:
        yield from dict.fromkeys((row["query"], "") for row in csv.DictReader(lines, delimiter="\t"))


def _acordar() -> Pairs:
    yield from ((text, "") for text in np.load(data_dir() / "text/acordar2/scores17.npz")["query"].tolist())


def _longeval() -> Pairs:
    with gzip.open(data_dir() / "real/longeval/query_id_map.csv.gz", "rt") as lines:
        yield from ((row["text_fr"], "") for row in csv.DictReader(lines))


def _metatool() -> Pairs:
    yield from _answered("metatool/all_clean_data.csv", "Query", "Tool")


def _govuk() -> Pairs:
    yield from dict.fromkeys(_answered("govuk/search_check_results.csv", "Search Term", "Page"))


def _banking() -> Pairs:
    for part in ("train", "test"):
        yield from _answered(f"intents/banking_{part}.csv", "text", "category")


def _hint() -> Pairs:
    for name in ("curekart", "powerplay11", "sofmattress"):
        yield from _answered(f"intents/{name}_train.csv", "sentence", "label")


def _clinc() -> Pairs:
    with gzip.open(data_dir() / "real/intents/clinc150.json.gz", "rt") as file:
        yield from ((text, f"clinc {answer}") for text, answer in json.load(file)["train"])


def _answered(path: str, text: str, answer: str) -> Pairs:
    with open(data_dir() / "real" / path, encoding="utf-8", newline="") as lines:
        yield from ((row[text], f"{path.split('/')[0]} {row[answer]}") for row in csv.DictReader(lines))


SOURCES: tuple[Callable[[], Pairs], ...] = (
    _mwmbl,
    _msrd,
    _acordar,
    _longeval,
    _metatool,
    _govuk,
    _banking,
    _hint,
    _clinc,
)


# --- one live judgment ------------------------------------------------------------------------------------------------


def judgment(n_known: int, n_asked: int) -> dict[str, object]:
    """Measure what one judged query costs, in `QueryMemory` and in a fitted ranker; milliseconds of CPU."""
    queries = movies().queries
    queries = queries.replace(query_columns={TEXT: queries.query_columns[TEXT]})
    known, new = grown(queries[n_asked:], n_known), queries[:n_asked]
    new = new.replace(qid=np.char.add("new ", new.qid.astype(np.str_)))
    few = LambdaMART(n_trees=30, n_leaves=15, n_threads=1)
    ranker = KinRanker(trees=few, settings={"n_repeats": 1}).fit(known[:FITTED])
    ranker.memory_ = None
    ranker.add(known[FITTED:])
    start = time.process_time()
    memory = QueryMemory.of(known)
    log_progress(f"{len(memory):,} judged queries are in memory after {time.process_time() - start:.1f} s")
    # Whether memory pays on these queries is not the question here.
    ranker.memory_ = MemoryPart(memory, np.arange(len(memory.names)), GrowingRows(known.qid.astype(np.str_)))
    ranker.prepare_to_learn()
    memory = ranker.memory_.memory
    times: dict[str, list[float]] = {name: [] for name in ("remember", "forget", "look up", "KinRanker.add", "remove")}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        start = time.process_time()
        result = work()
        times[name].append(1000 * (time.process_time() - start))
        return result

    for number in range(n_asked):
        query = new[number : number + 1]
        longer = timed("remember", lambda: memory.joined(memory.of_others(query)))  # noqa: B023
        memory = timed("forget", lambda: longer.without(np.array([2 * number])))  # noqa: B023
        timed("look up", lambda: memory.columns(query))  # noqa: B023
        ranker = timed("KinRanker.add", lambda: ranker.copy().add(query))  # noqa: B023
        if number % 2:
            ranker = timed("remove", lambda: ranker.copy().remove(query.qid))  # noqa: B023
    figures = {
        name: {
            "median ms": round(float(np.median(each[WARM:])), 2),
            "p95 ms": round(float(np.quantile(each[WARM:], 0.95)), 2),
            "most ms": round(max(each[WARM:]), 1),
        }
        for name, each in times.items()
    }
    return {"known": n_known, **figures}
