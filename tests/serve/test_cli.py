"""The commands serve and key."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kinrank.cli import app
from kinrank.serve import Service
from kinrank.serve._http import run as server
from kinrank.serve._http.run import Options
from kinrank.serve._keys import KeyRing, Role
from tests.serve.asgi import Client  # noqa: F401 - these tests need the extra


def run(*args: object) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


def test_key_prints_the_key_once(tmp_path: Path):
    done = run("admin", "key", tmp_path / "keys", "ops", "--role", "admin")
    found = KeyRing(tmp_path / "keys").find(done.stdout.strip())
    assert found is not None
    assert (found.name, found.role) == ("ops", Role.ADMIN)
    assert run("admin", "key", tmp_path / "keys", "ops").exit_code == 2


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nowhere"], "does not exist"),
        (["{model}", "--host", "0.0.0.0"], "there are no keys"),
        (["a={model}", "a={model}"], "two models are named 'a'"),
        (["../x={model}"], "a model name consists of"),
        (["{model}", "--deadline", "0"], "deadline must be positive"),
        (["{model}", "--engine", "http://127.0.0.1:9200/movies"], "is not an engine address"),
        (["{model}", "--set", "explore=1.5"], "explore must be a share from 0 to 1"),
        (["{model}", "--set", "explore=0.1"], "no model takes that"),
        (["{model}", "--set", "api_key"], "write it as name=value"),
        (
            ["{model}", "--set", "max_noveltie=2"],
            "encoders, cache, client_secret without --engine, got",
        ),
        (["{model}", "--set", "max_novelty=far"], "max_novelty must be float, got 'far'"),
        (["{model}", "--set", "in_flight=0"], "in_flight must be positive"),
        (["{model}", "--keys", "{folder}/nokeys"], "nokeys"),
        (["{model}", "--judgments", "sqlite:///{folder}/db"], "judgments need a key with role admin"),
    ],
)
def test_invalid_options_fail_before_serving(models: Path, tmp_path: Path, args: list[str], message: str):
    done = run("serve", *(arg.format(model=models / "knn", folder=tmp_path) for arg in args))
    assert done.exit_code == 2
    assert message in done.stderr


def test_settings_reach_the_service(models: Path, monkeypatch: pytest.MonkeyPatch):
    passed: list[Options] = []
    monkeypatch.setattr(server, "run", passed.append)
    words = ["--set", "max_novelty=2.5", "--set", "map_models=True", "--set", "trusted=shop,app"]
    assert run("serve", models / "knn", *words).exit_code == 0
    settings = passed[0].settings
    assert (settings.max_novelty, settings.map_models, settings.trusted) == (2.5, True, ("shop", "app"))
    assert settings.unexplored == ()


def test_client_settings_reach_the_engine(models: Path, monkeypatch: pytest.MonkeyPatch):
    passed: list[Options] = []
    monkeypatch.setattr(server, "run", passed.append)
    address = "elasticsearch+http://127.0.0.1:9/movies"
    done = run("serve", models / "knn", "--engine", address, "--set", "api_key=abc", "--set", "max_retries=0")
    assert (done.exit_code, passed[0].client) == (0, {"api_key": "abc", "max_retries": 0})
    searcher = server.make_searcher(Service(passed[0].models), passed[0])
    assert searcher is not None
    assert searcher.engine.client._headers["authorization"] == "ApiKey abc"
    searcher.close()


@pytest.mark.parametrize(
    "args",
    [
        ["admin", "forget", "{address}", "--client", "ann"],
        ["admin", "judgments", "{address}", "--export", "live.parquet"],
    ],
)
def test_a_database_that_does_not_exist_is_not_created(tmp_path: Path, args: list[str]):
    done = run(*(arg.format(address=f"sqlite:///{tmp_path}/db/judgments.db") for arg in args))
    assert (done.exit_code, "no such file" in done.stderr, list(tmp_path.iterdir())) == (2, True, [])
