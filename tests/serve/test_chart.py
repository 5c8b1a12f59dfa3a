"""The Helm chart: rendered by Helm, checked against the schemas of Kubernetes and the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

import kinrank
from kinrank.cli.app import app
from kinrank.serve._http.app import EXIT_SECONDS
from kinrank.serve._http.run import Options

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "chart"
OLDEST, NEWEST = "1.27", kubernetes_validate.latest_version()  # the chart names the oldest
CUSTOM = "monitoring.coreos.com/v1"  # resources of the Prometheus operator, which have no schema here
LEAST = {"models": ["s3://bucket/models"]}
ALL = {
    "models": ["books=s3://bucket/books", "films=s3://bucket/films"],
    "image": {"digest": "sha256:" + 64 * "0"},
    "judgments": {"secretName": "judgments"},
    "engine": {"address": "elasticsearch+http://search:9200/films", "featuresConfigMap": "films", "apiKeySecret": "es"},
    "env": [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector:4318"}],
    "envFrom": [{"secretRef": {"name": "bucket"}}],
    "extraArgs": ["--set=in_flight=64"],
    "drainSeconds": 30,
    "networkPolicy": {"egress": [{"ports": [{"protocol": "TCP", "port": 443}]}]},
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "search", "operator": "Exists"}],
    "podAnnotations": {"team": "search"},
    "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/models"}},
    "prometheus": {"podMonitor": True, "rules": True, "labels": {"release": "prometheus"}},
}
FIXED = {**LEAST, "autoscaling": {"enabled": False}, "networkPolicy": {"enabled": False}}
INVALID = [{}, {**LEAST, "replcas": 2}, {**LEAST, "image": {"digest": "latest"}}]
# Helm is a library in Go, whose threads and signal handlers do not belong into the process of other tests.
RENDER = """
import json, sys
import helm_python as helm
def render(values):
    try:
        return chart.render(values, name="kinrank", namespace="search")
    except helm.HelmError as error:
        return str(error)
chart = helm.Chart.load(sys.argv[1])
cases = json.load(sys.stdin)
print(json.dumps([helm.lint(sys.argv[1], cases[0], strict=True)["errors"], *map(render, cases)]))
"""

Manifests = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def rendered() -> list[Any]:
    cases = json.dumps([LEAST, ALL, FIXED, *INVALID])
    command = [sys.executable, "-c", RENDER, CHART]
    done = subprocess.run(command, input=cases, capture_output=True, text=True, check=True)
    errors, *results = json.loads(done.stdout)
    assert errors == []
    return results


def parse(result: Any) -> Manifests:
    assert isinstance(result, dict), result
    documents = [each for text in result.values() for each in yaml.safe_load_all(text) if each]
    return {each["kind"]: each for each in documents}


@pytest.fixture(scope="module")
def least(rendered: list[Any]) -> Manifests:
    return parse(rendered[0])


@pytest.fixture(scope="module")
def everything(rendered: list[Any]) -> Manifests:
    return parse(rendered[1])


def pod(manifests: Manifests) -> dict[str, Any]:
    return manifests["Deployment"]["spec"]["template"]["spec"]


def options(manifests: Manifests, monkeypatch: pytest.MonkeyPatch) -> Options:
    """Return what the process is told, as the command line reads it."""
    given: list[Options] = []
    monkeypatch.setattr("kinrank.serve._http.run.run", given.append)
    (container,) = pod(manifests)["containers"]
    result = CliRunner().invoke(app, ["serve", "--host", "0.0.0.0", "--port", "8080", *container["args"]])
    assert result.exit_code == 0, result.output
    return given[0]


@pytest.mark.parametrize(("case", "version"), [(1, OLDEST), (1, NEWEST), (2, NEWEST)], ids=["all", "newest", "fixed"])
def test_manifests_are_valid(rendered: list[Any], case: int, version: str):
    for document in parse(rendered[case]).values():
        if document["apiVersion"] != CUSTOM:
            kubernetes_validate.validate(document, version, strict=True)


def test_invalid_manifest_is_noticed(least: Manifests):
    broken = {**least["Service"], "spec": {"selects": {}}}
    with pytest.raises(kubernetes_validate.ValidationError, match="selects"):
        kubernetes_validate.validate(broken, OLDEST, strict=True)


@pytest.mark.parametrize(
    ("case", "message"), [(3, "models"), (4, "replcas"), (5, "digest")], ids=["no model", "typo", "digest"]
)
def test_invalid_values_are_refused(rendered: list[Any], case: int, message: str):
    assert isinstance(rendered[case], str)
    assert message in rendered[case]


def test_kinds_follow_the_values(rendered: list[Any]):
    always = {"Deployment", "PodDisruptionBudget", "Service", "ServiceAccount"}
    optional = {"HorizontalPodAutoscaler", "NetworkPolicy"}
    assert set(parse(rendered[0])) == always | optional
    assert set(parse(rendered[1])) == always | optional | {"PodMonitor", "PrometheusRule"}
    assert set(parse(rendered[2])) == always
    assert parse(rendered[2])["Deployment"]["spec"]["replicas"] == 3
    assert "replicas" not in parse(rendered[0])["Deployment"]["spec"]  # a rollout must not undo what was scaled


def test_process_takes_its_arguments(everything: Manifests, least: Manifests, monkeypatch: pytest.MonkeyPatch):
    address = "postgresql://kinrank:secret@db/kinrank"
    monkeypatch.setenv("KINRANK_JUDGMENTS", address)
    given = options(everything, monkeypatch)
    assert given.models == {"books": "s3://bucket/books", "films": "s3://bucket/films"}
    # The password of the database and the key of the engine are in the environment, not on the command line.
    assert (given.judgments, given.client) == (address, {})
    assert given.settings.log_shown == 10  # or clicks on searches are on unknown lists
    assert options(least, monkeypatch).settings.log_shown == 0  # there is no database to keep them in
    assert "judgments" not in str(pod(everything)["containers"][0]["args"])
    assert (given.cache, given.checkpoints) == ("/tmp/models", "/tmp/checkpoints")
    assert (given.settings.drain_seconds, given.settings.in_flight, given.settings.deadline) == (30, 64, 0.05)
    (container,) = pod(everything)["containers"]
    assert {"KINRANK_JUDGMENTS", "KINRANK_ENGINE_API_KEY"} <= {each["name"] for each in container["env"]}
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {str(Path(path).parent) for path in (given.keys, given.features) if path is not None} <= mounted
    assert options(least, monkeypatch).models == {"default": "s3://bucket/models"}


def test_pod_is_one_hardened_process_that_shares_no_disk(everything: Manifests):
    spec = pod(everything)
    (container,) = spec["containers"]
    assert container["image"] == "kinrank@sha256:" + 64 * "0"
    assert spec["securityContext"]["runAsNonRoot"]
    assert not spec["automountServiceAccountToken"]
    security = container["securityContext"]
    assert (security["readOnlyRootFilesystem"], security["allowPrivilegeEscalation"]) == (True, False)
    kinds = {kind for volume in spec["volumes"] for kind in volume if kind != "name"}
    assert kinds == {"secret", "configMap", "emptyDir"}
    keys = [constraint["topologyKey"] for constraint in spec["topologySpreadConstraints"]]
    assert keys == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]


def test_probes_have_timeouts_and_the_drain_fits_into_the_grace_period(
    everything: Manifests, monkeypatch: pytest.MonkeyPatch
):
    (container,) = pod(everything)["containers"]
    probes = {name: probe for name, probe in container.items() if name.endswith("Probe")}
    assert {name: probe["httpGet"]["path"] for name, probe in probes.items()} == {
        "startupProbe": "/healthz",
        "livenessProbe": "/healthz",
        "readinessProbe": "/readyz",
    }
    assert all(0 < probe["timeoutSeconds"] <= probe["periodSeconds"] for probe in probes.values())
    longest = options(everything, monkeypatch).settings.drain_seconds + EXIT_SECONDS
    assert pod(everything)["terminationGracePeriodSeconds"] > longest


def test_replicas_follow_the_queue(least: Manifests):
    from kinrank.serve._http.metrics import Metrics

    spec = least["HorizontalPodAutoscaler"]["spec"]
    metric = next(each["pods"] for each in spec["metrics"] if each["type"] == "Pods")
    assert metric["metric"]["name"] in {family.name for family in Metrics().registry.collect()}
    assert metric["target"] == {"type": "AverageValue", "averageValue": "4"}
    assert spec["scaleTargetRef"]["name"] == least["Deployment"]["metadata"]["name"]
    assert least["PodDisruptionBudget"]["spec"]["maxUnavailable"] < spec["minReplicas"]


def test_everything_selects_the_pods(everything: Manifests):
    labels = everything["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert everything["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert everything["Service"]["spec"]["selector"] == labels
    assert everything["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert everything["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    assert everything["PodMonitor"]["spec"]["selector"]["matchLabels"] == labels


def test_network_is_closed_but_for_what_is_named(least: Manifests, everything: Manifests):
    policy = least["NetworkPolicy"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    (rule,) = policy["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": "http"}]
    assert len(rule["from"]) == 2  # the namespace, and Prometheus
    (dns,) = policy["egress"]
    assert {port["port"] for port in dns["ports"]} == {53}
    assert everything["NetworkPolicy"]["spec"]["egress"][1:] == ALL["networkPolicy"]["egress"]


def test_prometheus_scrapes_every_pod_with_its_key_and_has_the_rules(everything: Manifests):
    (endpoint,) = everything["PodMonitor"]["spec"]["podMetricsEndpoints"]
    assert endpoint["authorization"]["credentials"] == {"name": "kinrank-scraper", "key": "key"}
    assert (endpoint["port"], endpoint["path"]) == ("http", "/metrics")
    assert {"targetLabel": "job", "replacement": "kinrank"} in endpoint["relabelings"]
    alerts = yaml.safe_load((ROOT / "deploy" / "alerts.yaml").read_text())
    assert everything["PrometheusRule"]["spec"] == alerts
    for kind in ("PodMonitor", "PrometheusRule"):
        assert everything[kind]["metadata"]["labels"]["release"] == "prometheus"


def test_chart_is_of_this_version():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == kinrank.__version__
    assert chart["kubeVersion"] == f">={OLDEST}.0-0"
