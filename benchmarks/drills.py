"""Each failure that was found in the service, as a drill with a criterion: it passes, or the run names what failed.

A drill is a test of this repository that starts real servers, so that CI runs the same drills: PostgreSQL,
Elasticsearch, HAProxy, an S3 server and up to three replicas. Start the engine first: `scripts/engine start
elasticsearch`. ``--drill NAME`` runs one. `fleet` and `serve_overload` are the long versions of two of them.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass

from benchmarks.common import log_progress
from benchmarks.engine_msrd import CHECKOUT


@dataclass(frozen=True)
class Drill:
    """A failure, when the drill passes, and its tests."""

    failure: str
    passes_if: str
    tests: tuple[str, ...]


DRILLS = {
    "restored-dump": Drill(
        "The database is restored from an older dump while three replicas run",
        "Every replica relearns and logs it; equal versions rank alike",
        ("test_judgments.py::test_replicas_agree_after_an_older_dump_was_restored", "test_fleet.py"),
    ),
    "blackholed-database": Drill(
        "The database accepts connections and never responds",
        "Nothing else waits; judgments get 503 that names the store, within its timeout",
        ("test_lanes.py",),
    ),
    "large-bodies": Drill(
        "60 connections send bodies of 4 MB to /v1/explain",
        "At most twice the idle memory plus 300 MB",
        ("test_slots.py::test_large_bodies_do_not_exhaust_memory",),
    ),
    "renamed-features": Drill(
        "A model with renamed or reordered features is published",
        "Refused unless --set accept_features=True; a model without examples is flagged",
        (
            "test_service.py::test_model_with_other_features_replaces_the_current_one_only_if_that_is_accepted",
            "test_service.py::test_model_without_examples_is_flagged",
        ),
    ),
    "held-slots": Drill(
        "140 slow bodies, or 140 requests that wait for a revision that never comes",
        "None of the others is turned away",
        (
            "test_slots.py::test_slow_bodies_turn_nobody_else_away",
            "test_slots.py::test_waiting_for_a_revision_turns_nobody_else_away",
        ),
    ),
    "forbidden-fields": Drill(
        "A query key asks for all fields, facets of suppliers, or a wider filter",
        "403, and the filter of the service holds in every request",
        ("test_search_policy.py",),
    ),
    "slow-engine": Drill(
        "The engine hangs, or rejects every search",
        "What needs no engine is answered; no further searches reach an engine that fails; used again once it is back",
        (
            "test_lanes.py::test_engine_that_hangs_holds_up_no_explanation",
            "test_search_movies.py::test_failing_engine_is_spared_and_used_again",
            "test_circuit.py",
        ),
    ),
    "busy-model": Drill(
        "One model gets more requests than the service can rank",
        "With HAProxy in front, each model has its own queue, and what would be late is rejected there",
        ("test_front.py",),
    ),
    "hostile-clients": Drill(
        "Clients pipeline requests without reading, send one-byte chunks, or rebind a DNS name",
        "No error is counted, the connection is closed, and a foreign Host gets 421",
        ("test_protocol.py", "test_hosts.py"),
    ),
    "object-storage": Drill(
        "Published versions are incomplete or damaged, or the S3 server is away",
        "The current model goes on, and the new one is used as soon as it is complete",
        ("test_versions.py",),
    ),
    "popular-query": Drill(
        "One query gets 33,000 lists a day, or one that cannot be counted",
        "Others are counted meanwhile, what expires is deleted, and a failure is reported as long as it lasts",
        tuple(
            f"test_events.py::test_{name}"
            for name in (
                "a_popular_query_does_not_hold_up_others",
                "a_query_that_cannot_be_counted_is_set_aside_and_counted_later",
                "what_expires_is_deleted_although_nothing_can_be_counted",
                "a_failure_to_count_is_reported_as_long_as_it_lasts",
            )
        ),
    ),
    "stopped-replica": Drill(
        "A replica is stopped in the middle of a transaction that holds a lock",
        "The server ends its session after 5 s, and the others count; it cannot commit when it goes on",
        ("test_events.py::test_a_replica_that_is_stopped_in_a_transaction_does_not_stop_the_others",),
    ),
    "wrong-clock": Drill(
        "The clock of a replica is days behind or ahead",
        "It deletes and misdates nothing",
        ("test_events.py::test_a_replica_with_a_wrong_clock_deletes_and_misdates_nothing",),
    ),
    "forged-lists": Drill(
        "A caller sends lists that it made up, in the names of many clients",
        "All of them count as one client, unless the service handed the lists out or the key is trusted",
        ("test_events.py::test_one_caller_is_one_client_unless_its_lists_were_handed_out",),
    ),
    "overlapping-jobs": Drill(
        "Three jobs add days of a log to one folder of evidence at the same time",
        "The folder has what one job after the other counts",
        ("../clicks/test_choices.py::test_overlapping_jobs_count_what_one_job_counts",),
    ),
}
OPTIONS = {"drill": ("all", *DRILLS)}


def run(drill: str) -> dict[str, object]:
    """Run the drills and return the result of each."""
    results: dict[str, object] = {}
    for name, each in DRILLS.items():
        if drill not in ("all", name):
            continue
        start = time.perf_counter()
        tests = [f"tests/serve/{test}" for test in each.tests]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-n", "0", *tests], cwd=CHECKOUT, capture_output=True, text=True
        )
        results[name] = {
            "failure": each.failure,
            "passes if": each.passes_if,
            "passes": done.returncode == 0,
            "result": done.stdout.strip().splitlines()[-1],
            "seconds": round(time.perf_counter() - start, 1),
        }
        log_progress(f"{name}: {'passes' if done.returncode == 0 else done.stdout[-3000:]}")
    return {**results, "holds": all(result["passes"] for result in results.values())}  # type: ignore[index]
