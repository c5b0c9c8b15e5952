"""What the chart renders: objects that Kubernetes takes, and for wrong values an error that says what to do."""

from __future__ import annotations

import copy
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from helmchart import CHART, EXAMPLES, NEWEST, ROOT, Helm, HelmError, Mounted, Objects
from kubernetesobjects import mistakes
from onnx import TensorProto, helper, save
from pageblocks import blocks_of

from connectors.kafka.config import KafkaSourceConfig
from streamer.definition.loading import load_all

# Helm may have to be built first.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

EXAMPLE = pytest.mark.parametrize("example", EXAMPLES, ids=lambda file: file.stem.removesuffix("-values"))

KAFKA = """\
source: {type: kafka, topics: in}
pipeline: []
sink: {type: kafka, topic: out}
"""
MQTT = """\
source: {type: mqtt, url: "mqtt://broker:1883", topics: "rooms/{room}/temp", codec: json}
pipeline: []
sink: {type: kafka, topic: out}
"""
GIVEN: dict[str, Any] = {"image": {"repository": "registry.example.com/streamer"}, "service": KAFKA}


def with_values(**values: Any) -> dict[str, Any]:
    """The least that the chart needs, with other values beside it."""
    return {**copy.deepcopy(GIVEN), **values}


@EXAMPLE
def test_helm_finds_no_mistake_in_the_chart_with_an_example(example: Path, helm: Helm) -> None:
    assert "0 chart(s) failed" in helm.run("lint", str(CHART), "--strict", "--values", str(example))


@EXAMPLE
def test_kubernetes_takes_what_an_example_renders(example: Path, helm: Helm) -> None:
    objects = helm.objects("--values", str(example))
    assert len(objects) >= 4
    assert [(item["kind"], wrong) for item in objects for wrong in mistakes(item)] == []
    names = [(item["kind"], item["metadata"]["name"]) for item in objects]
    assert len(set(names)) == len(names)


def test_kubernetes_takes_what_every_value_renders(helm: Helm, tmp_path: Path) -> None:
    volume = {"name": "extra", "emptyDir": {}}
    container = {"name": "side", "image": "registry.example.com/side:1"}
    objects = helm.objects(
        folder=tmp_path,
        values=with_values(
            workload="StatefulSet",
            ports=[{"name": "http", "port": 8000}],
            env={"COUNT": 4, "MANY": 10_000_000, "SHARE": 0.25, "FLAG": True},
            envFrom=[{"secretRef": {"name": "login"}}],
            secrets={"env": {"PASSWORD": {"name": "login", "key": "password"}}, "files": [{"name": "login"}]},
            models={"download": {"image": "registry.example.com/aws:1", "command": ["aws"], "args": ["s3", "sync"]}},
            data={"claim": {"size": "1Gi", "storageClassName": "fast"}},
            volumes=[volume],
            volumeMounts=[{"name": "extra", "mountPath": "/extra"}],
            keda={
                "enabled": True,
                "maxReplicas": 3,
                "bootstrapServers": "kafka:9092",
                "authentication": "kafka",
                "metadata": {"sasl": "scram_sha512", "tls": "enable"},
                "triggers": [{"type": "cron", "metadata": {"timezone": "UTC"}}],
            },
            monitor={"enabled": True, "kind": "ServiceMonitor", "token": {"name": "login", "key": "control"}},
            networkPolicy={"enabled": True, "egress": [{"to": [{"podSelector": {}}]}]},
            gpu={"count": 1},
            serviceAccount={"annotations": {"eks.amazonaws.com/role-arn": "arn"}},
            podAnnotations={"a": "b"},
            podLabels={"team": "ml"},
            nodeSelector={"disk": "ssd"},
            tolerations=[{"key": "gpu", "operator": "Exists"}],
            affinity={"podAntiAffinity": {}},
            priorityClassName="high",
            runtimeClassName="nvidia",
            initContainers=[container],
            extraContainers=[{**container, "name": "other"}],
            extraArgs=["--no-code"],
            image={"repository": "registry.example.com/streamer", "pullSecrets": ["registry"]},
        ),
    )
    assert [(item["kind"], wrong) for item in objects for wrong in mistakes(item)] == []
    kinds = {item["kind"] for item in objects}
    assert kinds == {
        *("ConfigMap", "StatefulSet", "Service", "ServiceAccount", "PodDisruptionBudget", "NetworkPolicy"),
        *("ServiceMonitor", "ScaledObject"),
    }
    env = {variable["name"]: variable.get("value") for variable in objects.container["env"]}
    assert (env["COUNT"], env["MANY"], env["SHARE"], env["FLAG"]) == ("4", "10000000", "0.25", "true")
    assert objects.container["resources"]["limits"] == {"memory": "1Gi", "nvidia.com/gpu": 1}


def test_an_unknown_field_of_an_object_would_be_seen(helm: Helm, tmp_path: Path) -> None:
    objects = helm.objects("--values", str(CHART / "ci/kafka-values.yaml"))
    broken = {item["kind"]: copy.deepcopy(item) for item in objects}
    broken["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriod"] = 30
    broken["ScaledObject"]["spec"]["triggers"][0]["metadata"]["lag"] = "5"
    broken["PodMonitor"]["spec"]["endpoints"] = []
    for kind, word in {
        "Deployment": "terminationGracePeriod",
        "ScaledObject": "lag",
        "PodMonitor": "endpoints",
    }.items():
        assert any(word in wrong for wrong in mistakes(broken[kind])), kind


@EXAMPLE
def test_the_service_file_of_an_example_is_right_where_the_container_has_it(
    example: Path, helm: Helm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Any
) -> None:
    pod = Mounted(helm.objects("--values", str(example)), tmp_path)
    for name in ("fans.onnx", "fraud/model.onnx", "inspect.onnx"):
        save_model(pod.path(f"/models/{name}"))
    for secret in ("password", "control"):
        if pod.path("/run/secrets").is_dir():
            pod.path(f"/run/secrets/{secret}").write_text("hush-hush\n")
    for name, value in pod.environment("fans-2", {"KAFKA_PASSWORD": "hush-hush"}).items():
        monkeypatch.setenv(name, value)
    # This machine has no GPU.
    monkeypatch.setenv("ONNX_PROVIDER", "cpu")
    shown = cli("check", pod.arguments[2])
    assert shown.code == 0, shown
    assert "metrics and health on http://0.0.0.0:9464" in shown.out
    (service,) = load_all(pod.arguments[2])
    if example.stem == "mqtt-values":
        assert service.sources[0].shard.index == 2  # type: ignore[attr-defined]
        assert service.sources[0].shard.count == 4  # type: ignore[attr-defined]
    if example.stem == "exactly-once-values":
        assert service.sources[0].instance == "payments-fans-2"  # type: ignore[attr-defined]


def save_model(path: Path) -> None:
    """A model whose input `x` has two values and whose output is their mean."""
    path.parent.mkdir(parents=True, exist_ok=True)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])
    risk = helper.make_tensor_value_info("risk", TensorProto.FLOAT, ["N", 1])
    graph = helper.make_graph([helper.make_node("ReduceMean", ["x"], ["risk"], axes=[1])], "fans", [x], [risk])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no image": ({"image": {}}, "image.repository: is empty; set it to the image"),
    "no service": ({"service": ""}, "service: is empty; pass the service file, --set-file service=fans.yaml"),
    "two service files": ({"serviceFile": "/srv/a.yaml"}, 'serviceFile: "/srv/a.yaml": `service` has a service file'),
    "an unknown key": ({"replcias": 2}, "'replcias' not allowed"),
    "an unknown key inside": ({"keda": {"max": 2}}, "'/keda': additional properties 'max' not allowed"),
    "a text for a number": ({"replicas": "two"}, "'/replicas': got string, want integer"),
    "an unknown word": ({"workload": "DaemonSet"}, "'/workload': value must be one of 'Deployment', 'StatefulSet'"),
    "a digest that is none": ({"image": {"digest": "latest"}}, "'/image/digest': 'latest' does not match"),
    "two sources of a volume": (
        {"models": {"volume": {"emptyDir": {}, "configMap": {}}}},
        "'/models/volume': maxProperties: got 2, want 1",
    ),
    "text that is no YAML": ({"service": "source: [kafka"}, "service: document 0 of the service file is not a mapping"),
    "a grace period below the drain": (
        {"terminationGracePeriodSeconds": 20},
        "terminationGracePeriodSeconds: 20: limits.drain of the service is 25s; 5 seconds more are needed",
    ),
    "a grace period with no time to leave the group": (
        {"terminationGracePeriodSeconds": 29},
        "terminationGracePeriodSeconds: 29: limits.drain of the service is 25s; 5 seconds more are needed",
    ),
    "a drain in minutes": (
        {"terminationGracePeriodSeconds": 60, "service": KAFKA + "limits: {drain: 2m}\n"},
        "terminationGracePeriodSeconds: 60: limits.drain of the service is 120s",
    ),
    "a drain of a file that the chart cannot read": (
        {"service": "", "serviceFile": "/srv/fans.yaml", "drain": "90s", "terminationGracePeriodSeconds": 60},
        "terminationGracePeriodSeconds: 60: limits.drain of the service is 90s",
    ),
    "a drain that is another than the file's": (
        {"drain": "30s"},
        "drain: 30s: the service file says limits.drain: 25s",
    ),
    "a static member in a Deployment": (
        {"service": KAFKA.replace("topics: in", "topics: in, instance: a")},
        "service: source.kafka: instance: a: pods of a Deployment get new names",
    ),
    "a static member that is scaled": (
        {
            "service": KAFKA.replace("topics: in", 'topics: in, instance: "${POD_NAME}"'),
            "workload": "StatefulSet",
            "keda": {"enabled": True, "maxReplicas": 4},
        },
        "instance: ${POD_NAME}: a static member does not leave its group",
    ),
    "one name for all static members": (
        {
            "service": KAFKA.replace("topics: in", "topics: in, instance: fans"),
            "workload": "StatefulSet",
            "replicas": 3,
        },
        "instance: fans: each of 3 pods needs its own; write fans-${POD_NAME}",
    ),
    "MQTT in a Deployment": ({"service": MQTT}, "service: source.mqtt: type: mqtt: its session belongs to one pod"),
    "MQTT in several pods": (
        {"service": MQTT, "workload": "StatefulSet", "replicas": 2},
        "all of 2 pods would have the same session; add shard:",
    ),
    "shards that are not as many as pods": (
        {
            "service": MQTT.replace("codec: json", 'shard: {index: "${POD_NAME}", count: 4, level: room}'),
            "workload": "StatefulSet",
            "replicas": 3,
        },
        "shard.count: 4: there are 3 pods (replicas)",
    ),
    "an MQTT sink of several pods": (
        {"service": KAFKA.replace("type: kafka, topic: out", "type: mqtt, topic: out"), "replicas": 2},
        "service: sink.mqtt: client_id: (made from the names of service and sink): two pods with one client id",
    ),
    "cameras in several pods": (
        {"service": KAFKA.replace("type: kafka, topics: in", "type: camera, url: a"), "replicas": 2},
        "service: source.camera: type: camera: every pod would read the same",
    ),
    "a secret that is not mounted": (
        {"service": KAFKA.replace("topics: in", 'topics: in, group: "${file:/run/secrets/group}"')},
        "service: ${file:/run/secrets/group}: no Secret is mounted in /run/secrets; set secrets.files",
    ),
    "a variable that is not set": (
        {"service": KAFKA.replace("topics: in", "topics: '${TOPIC}'")},
        "service: ${TOPIC}: no such variable; set env.TOPIC, secrets.env.TOPIC or envFrom",
    ),
    "scaling without a limit": ({"keda": {"enabled": True}}, "keda.maxReplicas: is empty; set it to the number of"),
    "scaling with limits that contradict": (
        {"keda": {"enabled": True, "maxReplicas": 2, "minReplicas": 3}},
        "keda.maxReplicas: 2: is below keda.minReplicas, 3",
    ),
    "scaling without brokers": (
        {"keda": {"enabled": True, "maxReplicas": 2}},
        "keda.bootstrapServers: is empty, and the brokers of the service file, ${KAFKA_BOOTSTRAP_SERVERS}, are",
    ),
    "scaling of MQTT": (
        {"service": MQTT, "workload": "StatefulSet", "keda": {"enabled": True, "maxReplicas": 2}},
        "service: source.mqtt: type: mqtt: each pod has a session of its own at the broker, so their number is fixed",
    ),
    "scaling without Kafka": (
        {
            "service": MQTT.replace("codec: json", "share: all"),
            "workload": "StatefulSet",
            "keda": {"enabled": True, "maxReplicas": 2},
        },
        "keda.enabled: true: the service file has no Kafka source",
    ),
    "a volume for each pod of a Deployment": (
        {"data": {"claim": {"size": "1Gi"}}},
        "data.claim.size: 1Gi: only a StatefulSet has a volume for each pod",
    ),
    "files beside no service": (
        {"service": "", "serviceFile": "/srv/fans.yaml", "files": {"a.yaml": "steps: []"}},
        "files: a.yaml: files are mounted beside `service`, which is empty",
    ),
    "a token inside of secrets": (
        {"serviceAccount": {"automountToken": True}, "secrets": {"files": [{"name": "login"}]}},
        "secrets.mountPath: /run/secrets: Kubernetes mounts the service account's token inside of it",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_values_are_refused_with_the_key_the_value_and_what_to_do(case: str, helm: Helm, tmp_path: Path) -> None:
    values, message = WRONG[case]
    with pytest.raises(HelmError) as raised:
        helm.text(values=with_values(**values), folder=tmp_path)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("drain", "grace"),
    [("", 40), ("limits: {drain: 90s}", 105), ("limits: {drain: 1.5}", 17), ("limits: {drain: 2m}", 135)],
)
def test_the_pod_gets_the_time_that_its_service_needs_to_drain(
    drain: str, grace: int, helm: Helm, tmp_path: Path
) -> None:
    objects = helm.objects(values=with_values(service=f"{KAFKA}{drain}\n---\n{KAFKA}name: other\n"), folder=tmp_path)
    if "90" not in drain and "2m" not in drain:
        grace = 40  # that of the other service
    assert objects.pod["terminationGracePeriodSeconds"] == grace


def test_a_grace_period_that_is_just_long_enough_is_taken(helm: Helm, tmp_path: Path) -> None:
    objects = helm.objects(values=with_values(terminationGracePeriodSeconds=30), folder=tmp_path)
    assert objects.pod["terminationGracePeriodSeconds"] == 30


@EXAMPLE
def test_containers_have_no_rights_that_they_do_not_need(example: Path, helm: Helm) -> None:
    pod = helm.objects("--values", str(example)).pod
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    user = yaml.safe_load((ROOT / "Dockerfile").read_text().split("useradd --uid ")[1].split()[0])
    assert pod["securityContext"]["runAsUser"] == user
    for container in (*pod["containers"], *pod.get("initContainers", ())):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_volumes_and_the_way_of_an_update_can_be_others(helm: Helm, tmp_path: Path) -> None:
    claim = {"persistentVolumeClaim": {"claimName": "shared"}}
    values = with_values(cache={"volume": claim}, data={"volume": claim}, strategy={"type": "Recreate"})
    objects = helm.objects(values=values, folder=tmp_path)
    volumes = {volume["name"]: volume for volume in objects.pod["volumes"]}
    assert volumes["cache"] == {"name": "cache", **claim}
    assert volumes["data"] == {"name": "data", **claim}
    assert objects.of("Deployment")["spec"]["strategy"] == {"type": "Recreate"}
    assert [wrong for item in objects for wrong in mistakes(item)] == []


def test_a_changed_service_file_rolls_the_pods(helm: Helm, tmp_path: Path) -> None:
    def annotations(**values: Any) -> Any:
        objects = helm.objects(values=with_values(**values), folder=tmp_path)
        return objects.of("Deployment")["spec"]["template"]["metadata"]["annotations"]

    assert annotations() == annotations(replicas=3)
    assert annotations() != annotations(service=KAFKA.replace("topics: in", "topics: other"))
    assert annotations() != annotations(files={"other.yaml": "steps: []"})


SCALED = """\
source:
  - {type: kafka, name: one, topics: [a, "${TOPIC:-b}"], group: "${GROUP}"}
  - {type: kafka, name: two, topics: c, bootstrap: "other:9092", start: latest}
  - {type: kafka, name: three, topics: "^logs[.]"}
pipeline: []
sink: {type: kafka, bootstrap: "other:9092", topic: out}
---
name: named
source: {type: kafka, topics: d}
pipeline: []
sink: {type: kafka, topic: out}
"""


def test_pods_are_scaled_by_the_lag_of_the_groups_that_the_service_joins(
    helm: Helm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"KAFKA_BOOTSTRAP_SERVERS": "kafka:9092", "GROUP": "readers"}
    values = with_values(service=SCALED, env=env, keda={"enabled": True, "maxReplicas": 8, "lag": 5_000_000})
    objects = helm.objects(values=values, folder=tmp_path)
    triggers = [trigger["metadata"] for trigger in objects.of("ScaledObject")["spec"]["triggers"]]
    pod = Mounted(objects, tmp_path)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    expected = []
    for service in load_all(pod.arguments[2]):
        for source in service.sources:
            assert isinstance(source, KafkaSourceConfig)
            for topic in source.topics:
                expected.append(
                    {
                        "bootstrapServers": source.bootstrap or "kafka:9092",
                        "consumerGroup": source.group,
                        "topic": None if topic.startswith("^") else topic,
                        "offsetResetPolicy": "latest" if source.start == "latest" else "earliest",
                    }
                )
    assert len(expected) == 5
    assert [{key: trigger.get(key) for key in expected[0]} for trigger in triggers] == expected
    assert {trigger["lagThreshold"] for trigger in triggers} == {"5000000"}
    # Helm would otherwise undo with each upgrade what KEDA has set.
    assert "replicas" not in objects.of("Deployment")["spec"]


def test_probes_ask_the_port_that_the_service_listens_on(helm: Helm, tmp_path: Path) -> None:
    objects = helm.objects(values=with_values(control={"port": 9000}, probes={"startupSeconds": 42}), folder=tmp_path)
    container = objects.container
    assert {"name": "control", "containerPort": 9000} in container["ports"]
    assert {"name": "STREAMER_CONTROL", "value": "0.0.0.0:9000"} in container["env"]
    probes = {name: container[f"{name}Probe"] for name in ("startup", "liveness", "readiness")}
    assert {name: probe["httpGet"] for name, probe in probes.items()} == {
        "startup": {"path": "/live", "port": "control"},
        "liveness": {"path": "/live", "port": "control"},
        "readiness": {"path": "/ready", "port": "control"},
    }
    assert probes["startup"]["failureThreshold"] * probes["startup"]["periodSeconds"] >= 42


def test_helm_says_how_to_look_at_what_it_has_installed(helm: Helm, tmp_path: Path) -> None:
    # Helm shows the notes only when it installs into a cluster: they are rendered as a text of an object here.
    copied = shutil.copytree(CHART, tmp_path / "streamer")
    notes = copied / "templates/NOTES.txt"
    text = '{{ define "notes" }}' + notes.read_text() + '{{ end }}kind: Notes\ntext: {{ include "notes" . | toJson }}\n'
    (copied / "templates/notes.yaml").write_text(text)
    notes.unlink()

    def rendered(*values: str) -> str:
        settings = [part for value in ("image.repository=a/b", *values) for part in ("--set", value)]
        shown = helm.run("template", "fans", str(copied), "--namespace", "ml", "--kube-version", NEWEST, *settings)
        (note,) = [item for item in yaml.safe_load_all(shown) if item and item["kind"] == "Notes"]
        return str(note["text"])

    unread = rendered("serviceFile=/srv/fans.yaml", "drain=50s", "workload=StatefulSet")
    assert "kubectl --namespace ml rollout status statefulset/fans" in unread
    assert "within 50 seconds, and is killed after 65." in unread
    assert "The chart cannot read /srv/fans.yaml" in unread
    read = rendered(f"service={KAFKA.replace(',', chr(92) + ',')}", "replicas=2")
    assert "as a Deployment of 2 pods, in the namespace ml" in read
    assert "cannot read" not in read


def test_the_alerts_become_rules_of_the_prometheus_operator(helm: Helm) -> None:
    alerts = ROOT / "deploy/prometheus/alerts.yaml"
    example = str(CHART / "ci/kafka-values.yaml")
    objects = helm.objects("--values", example, "--set-file", f"monitor.rules={alerts}")
    rule = objects.of("PrometheusRule")
    assert rule["spec"] == yaml.safe_load(alerts.read_text())
    # The alerts name the job, which the label of the pods gives.
    assert 'job="streamer"' in alerts.read_text()
    labels = objects.of("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert labels[objects.of("PodMonitor")["spec"]["jobLabel"]] == "streamer"
    assert mistakes(rule) == []
    with pytest.raises(HelmError, match=r"monitor\.rules: is not a file of rules, with `groups`"):
        helm.text("--values", example, "--set", "monitor.rules=alerts.yaml")


def test_every_value_is_in_the_schema(helm: Helm, tmp_path: Path) -> None:
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())

    def compare(values: dict[str, Any], part: dict[str, Any], path: str) -> None:
        if "additionalProperties" not in part or part["additionalProperties"] is not False:
            return
        assert set(part["properties"]) - set(values) <= ({"global"} if not path else set()), path
        assert set(values) <= set(part["properties"]), path
        for key, value in values.items():
            if isinstance(value, dict):
                compare(value, part["properties"][key], f"{path}.{key}")

    compare(yaml.safe_load((CHART / "values.yaml").read_text()), schema, "")


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = (ROOT / "pyproject.toml").read_text().split('\nversion = "')[1].split('"')[0]
    assert chart["version"] == chart["appVersion"] == project


def test_the_manifest_for_people_without_helm_is_what_the_chart_renders(helm: Helm) -> None:
    values = ROOT / "deploy/kubernetes/values.yaml"
    manifest = ROOT / "deploy/kubernetes/fans.yaml"
    written = Objects([item for item in yaml.safe_load_all(manifest.read_text()) if item])
    rendered = helm.objects("--values", str(values))
    for item in rendered:
        for label in ("app.kubernetes.io/managed-by", "helm.sh/chart"):
            del item["metadata"]["labels"][label]
    assert written == rendered


def test_the_command_of_the_page_installs_the_service_of_the_readme(helm: Helm, tmp_path: Path) -> None:
    (block,) = [block for block in blocks_of(ROOT / "docs/kubernetes.md") if "helm install fans" in block.text]
    command = block.text.replace("\\\n", " ").split("helm install fans", 1)[1].splitlines()[0]
    readme = next(
        block for block in blocks_of(ROOT / "README.md") if block.mark == "file" and "fans.onnx" in block.text
    )
    service = tmp_path / "fans.yaml"
    service.write_text(readme.text.replace("modelUri: fans.onnx", "modelUri: /models/fans.onnx"))
    assert "/models/" in service.read_text()
    chart, *flags = shlex.split(command.replace("service=fans.yaml", f"service={service}"))
    assert ROOT / chart == CHART
    objects = helm.objects(*flags)
    assert objects.of("ConfigMap")["data"]["fans.yaml"].strip() == service.read_text().strip()
    assert {"name": "models", "configMap": {"name": "fans-models"}} in objects.pod["volumes"]
    assert objects.container["image"] == "registry.example.com/streamer:0.2.0"
    assert [wrong for item in objects for wrong in mistakes(item)] == []
