"""What is in deploy/: it can be read, names what exists, and keeps to the settings' limits."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mainstem.config import GATEWAY_KEYS, load_gateway_config
from mainstem.jobs.jobs_config import SCHEDULER_KEYS, load_jobs_config


@pytest.fixture(scope="module")
def generator(repo_root: Path) -> Any:
    name = "deploy_generate"
    spec = importlib.util.spec_from_file_location(name, repo_root / "deploy/generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def known(generator: Any) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = generator.families()
    return found


def documents(file: Path) -> list[Any]:
    yaml: Any = pytest.importorskip("yaml")
    return list(yaml.safe_load_all(file.read_text()))


def containers(document: Any) -> list[Any]:
    return list(document["spec"].get("template", {}).get("spec", {}).get("containers", []))


def test_the_dashboard_and_the_alerts_are_current(
    generator: Any, repo_root: Path, tmp_path: Path
) -> None:
    for written in generator.generate(tmp_path):
        committed = repo_root / "deploy" / written.name
        assert committed.read_text() == written.read_text(), "run: python deploy/generate.py"


def test_the_dashboard_and_the_alerts_name_only_metrics_that_exist(
    generator: Any, known: dict[str, tuple[str, str]], repo_root: Path
) -> None:
    endings = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "gauge": ("",)}
    exist = {name + end for name, (kind, _) in known.items() for end in endings.get(kind, ())}
    expressions = [one.expr for one in (*generator.PANELS, *generator.ALERTS)]
    board = json.loads((repo_root / "deploy/grafana-dashboard.json").read_text())
    expressions += [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    for expression in expressions:
        named = set(re.findall(r"\b(?:mainstem|process)_\w+", expression))
        assert named, expression
        assert named <= exist, expression
    shown = " ".join(expressions)
    ours = {name for name in known if name.startswith("mainstem_")} - {"mainstem_build_info"}
    assert {name for name in ours if name not in shown} == set()
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))


def test_every_metric_is_in_the_reference(
    known: dict[str, tuple[str, str]], repo_root: Path
) -> None:
    page = (repo_root / "docs/reference/metrics.md").read_text()
    assert [name for name in known if name.startswith("mainstem_") and name not in page] == []


def test_the_alerts_are_rules_as_prometheus_takes_them(repo_root: Path) -> None:
    (found,) = documents(repo_root / "deploy/prometheus-alerts.yaml")
    (group,) = found["groups"]
    for rule in group["rules"]:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+m", rule["for"])
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["expr"].count("(") == rule["expr"].count(")")


def test_promtool_takes_the_alerts(repo_root: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool")
    rules = repo_root / "deploy/prometheus-alerts.yaml"
    done = subprocess.run([promtool, "check", "rules", str(rules)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_metrics_that_every_program_has_are_of_gateways_only(generator: Any) -> None:
    named = [one for one in (*generator.PANELS, *generator.ALERTS) if "process_" in one.expr]
    assert len(named) == 3
    assert all("and on (job, instance) mainstem_build_info" in one.expr for one in named)


def test_pods_are_probed_not_linked_not_root_and_have_time_to_drain(repo_root: Path) -> None:
    found = [
        one
        for name in ("gateway", "scheduler")
        for one in documents(repo_root / f"deploy/kubernetes/{name}.yaml")
    ]
    assert all({"apiVersion", "kind", "metadata", "spec"} <= set(one) for one in found)
    pods = [one["spec"]["template"]["spec"] for one in found if containers(one)]
    assert len(pods) == 2
    claims = {one["metadata"]["name"] for one in found if one["kind"] == "PersistentVolumeClaim"}
    for pod in pods:
        assert pod["enableServiceLinks"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        (container,) = pod["containers"]
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
        assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
        # It looks at the store for up to 9 s.
        assert container["readinessProbe"]["timeoutSeconds"] >= 10
        # A full disk makes /readyz red, and such a gateway is to stay: it serves what frees space.
        assert container.get("startupProbe", container["livenessProbe"])["httpGet"]["path"] == (
            "/healthz"
        )
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
        ports = {port["name"] for port in container["ports"]}
        assert {
            container[p]["httpGet"]["port"] for p in ("readinessProbe", "livenessProbe")
        } <= ports
        grace_ms = pod["terminationGracePeriodSeconds"] * 1000
        assert int(GATEWAY_KEYS["drain.timeout.ms"].default) < grace_ms
        assert int(SCHEDULER_KEYS["shutdown.grace.ms"].default) < grace_ms
        for volume in pod["volumes"]:
            if "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] in claims


def test_gateways_go_one_at_a_time_and_are_known_beyond_their_namespace(repo_root: Path) -> None:
    found = {one["kind"]: one for one in documents(repo_root / "deploy/kubernetes/gateway.yaml")}
    budget, pods = found["PodDisruptionBudget"]["spec"], found["StatefulSet"]["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"] == pods["selector"]
    (container,) = pods["template"]["spec"]["containers"]
    variables = {one["name"]: one.get("value", "") for one in container["env"]}
    advertised = variables["MAINSTEM_ADVERTISED_LISTENERS"]
    assert advertised == f"$(POD_NAME).{pods['serviceName']}.$(POD_NAMESPACE).svc:9490"
    assert {"POD_NAME", "POD_NAMESPACE"} <= variables.keys()


def test_units_leave_settings_to_their_file(repo_root: Path) -> None:
    for file in (repo_root / "deploy").glob("*.service"):
        text = file.read_text()
        assert "MAINSTEM_" not in text, "a variable would win over the file in silence"
        assert "WorkingDirectory=/var/lib/mainstem\n" in text
        assert "StateDirectory=mainstem\n" in text
    assert GATEWAY_KEYS["warehouse"].default == "warehouse"


def test_variables_that_are_set_for_containers_and_services_are_settings(repo_root: Path) -> None:
    texts = [
        file.read_text()
        for pattern in ("Dockerfile", "compose.yaml", "*.service", "kubernetes/*.yaml")
        for file in (repo_root / "deploy").glob(pattern)
    ]
    named = {name for text in texts for name in re.findall(r"\bMAINSTEM_[A-Z_]+(?=[=:,])", text)}
    assert "MAINSTEM_WAREHOUSE" in named
    values = {"MAINSTEM_LOG_FORMAT": "json"}
    config = load_gateway_config(environment={name: values.get(name, "a:1") for name in named})
    assert config.warnings == ()


def test_compose_starts_the_scheduler_when_the_gateway_is_healthy(repo_root: Path) -> None:
    (found,) = documents(repo_root / "deploy/compose.yaml")
    services = found["services"]
    assert services["scheduler"]["depends_on"]["gateway"]["condition"] == "service_healthy"
    dockerfile = (repo_root / "deploy/Dockerfile").read_text()
    for service in services.values():
        assert f" AS {service['build']['target']}\n" in dockerfile
        assert service["volumes"][0].split(":")[0] in found["volumes"]


def test_images_run_as_another_user_than_root_and_say_whether_they_are_healthy(
    repo_root: Path,
) -> None:
    text = (repo_root / "deploy/Dockerfile").read_text()
    stages = re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]
    assert stages[-1].splitlines()[0].endswith(" AS gateway")
    for stage in stages[-2:]:
        assert "\nUSER 10001\n" in stage
        assert "HEALTHCHECK" in stage
        assert "/healthz" in stage


def test_the_jobs_of_the_image_are_settings(repo_root: Path) -> None:
    config = load_jobs_config(repo_root / "deploy/jobs.toml")
    assert config.text("metrics.listeners") == "0.0.0.0:9492"


@pytest.mark.parametrize("name", ["mainstem-gateway", "mainstem-scheduler"])
def test_systemd_takes_the_units(name: str, repo_root: Path, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze")
    text = (repo_root / f"deploy/{name}.service").read_text()
    # It looks for the program, which is not installed here.
    unit = tmp_path / f"{name}.service"
    unit.write_text(text.replace("/opt/mainstem/bin/mainstem", "/bin/true"))
    done = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True)
    assert (done.returncode, unit.name in done.stderr) == (0, False), done.stderr
