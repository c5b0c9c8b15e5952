"""`streamer doctor`: one page about an installation, a machine and service files, that may be published."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from listener import Listener
from packaging.requirements import Requirement

from connectors.kafka.client import answers
from pipelines.errors import DISTRIBUTION
from streamer.cli.doctor.asking import asked
from streamer.cli.doctor.extras import Extra
from streamer.cli.doctor.line import Line
from streamer.cli.doctor.packages import packages
from streamer.cli.doctor.variables import OURS, variables
from streamer.devbroker import Broker, create_topics
from streamer.observe import shown

ROOT = Path(__file__).parents[3]
SECRET = "hunter22-of-the-doctor"


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "_known", frozenset())
    for name in [name for name in os.environ if name.startswith("STREAMER_")]:
        monkeypatch.delenv(name)


def lines_of(ended: Any) -> dict[str, dict[str, str]]:
    """All lines of the page as JSON, by part."""
    sections = json.loads(ended.out)["sections"]
    return {line["part"]: line for section in sections for line in section["lines"]}


def kafka_service(folder: Path, bootstrap: str, topic: str) -> Path:
    file = folder / "service.yaml"
    file.write_text(
        f"source: {{type: kafka, bootstrap: '{bootstrap}', topics: {topic}, codec: json}}\n"
        f"pipeline: []\nsink: {{type: kafka, bootstrap: '{bootstrap}', topic: {topic}-out, codec: json}}\n"
    )
    return file


def send(broker: Broker, topic: str, timestamp: float) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b'{"x": 1}', timestamp=int(timestamp * 1000))
    assert producer.flush(20) == 0


def test_the_page_names_versions_hot_path_providers_extras_and_limits(cli: Any) -> None:
    ended = cli("doctor", "--json")
    assert ended.code == 0, ended.out
    lines = lines_of(ended)
    assert distribution(DISTRIBUTION).version in lines["streamer"]["text"]
    assert f"{sys.version_info.major}.{sys.version_info.minor}." in lines["Python"]["text"]
    assert re.search(r"confluent-kafka \d.*librdkafka \d", lines["Kafka"]["text"])
    assert "CPU" in lines["ONNX Runtime"]["text"]
    assert {"kafka", "onnx", "mqtt"} <= set(lines["extras"]["text"].split(", "))
    assert lines["hot path"]["text"].startswith(("compiled", "plain Python"))
    assert {"CPUs", "memory", "open files", "model cache", "clock", "plug-ins"} <= lines.keys()


def test_the_page_as_text_has_the_same_lines_each_unbroken(cli: Any) -> None:
    ended = cli("doctor")
    assert ended.code == 0, ended.out
    page = ended.out.splitlines()
    assert [line for line in page if line.startswith("  ok       Python")]
    assert all(re.match(r"  (ok      |warning |wrong   ) \S", line) for line in page if line.startswith(" "))
    assert re.fullmatch(r"\d+ lines: \d+ warnings?, 0 wrong", page[-1])


def test_a_service_on_a_real_broker_gets_its_topics_extras_and_clock(
    cli: Any, kafka: Broker, topics: Any, tmp_path: Path
) -> None:
    name = topics(2)
    topic_out = f"{name}-out"
    create_topics(kafka.bootstrap, {topic_out: 1})
    send(kafka, name, time.time() - 600)
    ended = cli("doctor", kafka_service(tmp_path, kafka.bootstrap, name), "--json")
    assert ended.code == 0, ended.out
    lines = lines_of(ended)
    assert f"{name} has 2 partitions" in lines["source kafka"]["text"]
    assert f"{topic_out} has 1 partition" in lines["sink kafka"]["text"]
    assert lines["extras needed"]["text"] == "kafka"
    assert lines[f"clock, {name}"]["text"].startswith("the newest record is 1")


def test_a_record_from_the_future_is_a_warning_about_clocks(
    cli: Any, kafka: Broker, topics: Any, tmp_path: Path
) -> None:
    name = topics()
    send(kafka, name, time.time() + 300)
    lines = lines_of(cli("doctor", kafka_service(tmp_path, kafka.bootstrap, name), "--json"))
    assert lines[f"clock, {name}"]["state"] == "warning"
    assert re.search(r"dated (2[89]\d|300) s later than now", lines[f"clock, {name}"]["text"])


class Frozen(Listener):
    """Accepts connections, and says nothing."""

    def _came(self, client: socket.socket) -> None:
        with self._lock:
            self._open.add(client)


def test_a_broker_that_accepts_and_says_nothing_costs_a_limited_time_once(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "PATIENCE", 1.0)
    with Frozen() as frozen:
        file = kafka_service(tmp_path, f"127.0.0.1:{frozen.port}", "in")
        began = time.monotonic()
        ended = cli("doctor", file, "--json")
    # A second for the broker; the rest is for imports on a busy machine.
    assert time.monotonic() - began < 45
    assert ended.code == 1
    lines = lines_of(ended)
    assert lines["source kafka"]["state"] == "wrong"
    assert "no Kafka answers" in lines["source kafka"]["text"]
    assert lines["sink kafka"]["text"] == "as source kafka"
    assert not [part for part in lines if part.startswith("clock,")]


def test_what_never_answers_is_left_behind_and_named() -> None:
    def never() -> list[Line]:
        time.sleep(30)
        return []

    began = time.monotonic()
    (line,) = asked("brokers", never, 0.1)
    assert time.monotonic() - began < 10
    assert (line.part, line.state) == ("brokers", "wrong")
    assert line.text.startswith("no answer within 0.1 s")


def test_a_check_that_fails_itself_is_a_line_and_not_the_end_of_the_page() -> None:
    def broken() -> list[Line]:
        raise ZeroDivisionError("x")

    (line,) = asked("machine", broken, 10)
    assert line.text == "ZeroDivisionError: x"
    assert "report it" in line.advice


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_no_secret_of_a_file_or_of_the_environment_is_on_the_page(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setattr(answers, "PATIENCE", 0.5)
    monkeypatch.setenv("A_PASSWORD", f"{SECRET}-1")
    monkeypatch.setenv("HTTPS_PROXY", f"http://user:{SECRET}-2@127.0.0.1:9")
    monkeypatch.setenv("MQTT_BROKER", f"user:{SECRET}-3@127.0.0.1:9")
    monkeypatch.setenv("STREAMER_TOKEN", f"{SECRET}-4")
    (tmp_path / "token").write_text(f"{SECRET}-5\n")
    file = tmp_path / "service.yaml"
    file.write_text(
        "source:\n  type: kafka\n  bootstrap: 127.0.0.1:9\n  topics: in\n"
        f"  client: {{security.protocol: SASL_PLAINTEXT, sasl.mechanism: PLAIN, sasl.username: u,"
        " sasl.password: '${A_PASSWORD}'}\n"
        f"  codec: {{type: avro, registry: {{url: 'http://127.0.0.1:9', auth: {{token: {SECRET}-6}}}}}}\n"
        "pipeline:\n"
        f"  - {{'@type': ONNX, modelUri: 'http://user:{SECRET}-7@127.0.0.1:9/m.onnx?token={SECRET}-8'}}\n"
        "sink: {type: mqtt, url: 'mqtt://127.0.0.1:9', topic: out,"
        f" name: 'to-${{A_PASSWORD}}', username: u, password: {SECRET}-9}}\n"
        "dead_letter: {type: mqtt, url: 'mqtt://127.0.0.1:9', topic: dead, username: u, password: '${file:token}'}\n"
    )
    ended = cli("doctor", file, *options)
    assert ended.code in (1, 2)
    assert "no Kafka answers on 127.0.0.1:9" in ended.out
    assert "A_PASSWORD is set" in ended.out
    assert "HTTPS_PROXY" in ended.out
    assert SECRET not in ended.out + ended.err


def test_a_wrong_file_is_exit_code_2_with_its_line_and_the_nearest_name(cli: Any, tmp_path: Path) -> None:
    file = tmp_path / "service.yaml"
    file.write_text("source: {type: memory, topcis: in}\npipeline: []\nsink: {type: memory, topic: out}\n")
    ended = cli("doctor", file, "--json")
    assert ended.code == 2
    assert f"{file}:1" in lines_of(ended)["file"]["text"]


def test_a_service_without_buses_is_right_and_a_missing_model_is_not(cli: Any, tmp_path: Path) -> None:
    file = tmp_path / "service.yaml"
    text = "source: {type: memory, topic: in}\npipeline: []\nsink: {type: file, path: out.jsonl, format: jsonl}\n"
    file.write_text(text + "on_error: drop\n")
    ended = cli("doctor", file, "--json")
    assert ended.code == 0, ended.out
    assert lines_of(ended)["disk of file"]["text"].endswith(f"free in {tmp_path}")
    file.write_text(text.replace("[]", "[{'@type': ONNX, modelUri: none.onnx}]"))
    ended = cli("doctor", file, "--json")
    assert ended.code == 2
    assert "none.onnx" in lines_of(ended)["step 0:ONNX"]["text"]


def test_code_of_a_file_is_not_run_with_no_code(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\ndef f(data): return data\n")
    file = tmp_path / "service.yaml"
    file.write_text(
        "source: {type: memory, topic: in}\npipeline: [{'@type': FUNCTION, function: 'theirs:f'}]\n"
        "sink: {type: memory, topic: out}\n"
    )
    assert cli("doctor", file, "--no-code").code == 2
    assert not (tmp_path / "ran").exists()
    assert cli("doctor", file).code == 0
    assert (tmp_path / "ran").exists()


def test_a_variable_that_nothing_reads_is_a_warning_with_the_nearest_name() -> None:
    (line,) = variables(environment={"STREAMER_NATVE": "python"})
    assert (line.part, line.state) == ("STREAMER_NATVE", "warning")
    assert 'did you mean "STREAMER_NATIVE"?' in line.text
    (line,) = variables(named=["STREAMER_NATVE"], environment={"STREAMER_NATVE": "python"})
    assert line.text == "none of those that streamer reads is set"


@pytest.mark.parametrize(
    ("name", "value"),
    [("STREAMER_LOG", "loud"), ("STREAMER_MODEL_LIMIT", "much"), ("STREAMER_MODEL_TIMEOUT", "soon")],
)
def test_a_variable_with_a_value_that_cannot_be_used_is_wrong(name: str, value: str) -> None:
    (line,) = variables(environment={name: value})
    assert (line.part, line.state) == (name, "wrong")
    assert value in line.text


def test_a_hot_path_that_does_not_exist_is_wrong(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMER_NATIVE", "natve")
    ended = cli("doctor", "--json")
    assert ended.code == 1
    lines = lines_of(ended)
    assert 'did you mean "native"?' in lines["hot path"]["text"]
    assert lines["STREAMER_NATIVE"]["state"] == "wrong"


def test_every_variable_of_streamer_that_the_code_reads_is_on_the_page() -> None:
    code = "".join(
        file.read_text()
        for package in ("pipelines", "connectors", "streamer")
        for file in (ROOT / package).rglob("*.py")
    )
    named = set(re.findall(r'"(STREAMER_[A-Z_]*[A-Z])"', code))
    assert len(named) > 6
    assert named == set(OURS)


def test_a_limit_of_open_files_below_what_the_service_needs_is_wrong(start: Any, tmp_path: Path) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(
        "source: {type: mqtt_endpoint, listen: '127.0.0.1:0', topics: in, connections: 3000}\n"
        "pipeline: []\nsink: {type: memory, topic: out}\non_error: drop\n"
    )

    def few_files() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_NOFILE, (1000, 2000))

    process = start("doctor", file, "--json", preexec_fn=few_files)
    out, err = process.communicate(timeout=120)
    sections = json.loads(out)["sections"]
    (line,) = [line for line in sections[-1]["lines"] if line["part"] == "open files"]
    assert line["state"] == "wrong", err
    assert line["text"] == "it needs about 3,080, and may have 1,000"
    assert "ulimit -n 6160" in line["advice"]
    (line,) = [line for line in sections[2]["lines"] if line["part"] == "open files"]
    assert line["state"] == "warning"


def core_only(site: Path) -> None:
    """Link what a bare `pip install streamer-inference` brings into `site`, and nothing else of this environment."""
    wanted, linked = [DISTRIBUTION], set()
    while wanted:
        name = wanted.pop()
        if name in linked:
            continue
        linked.add(name)
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue
        for requirement in map(Requirement, installed.requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                wanted.append(requirement.name)
        for top in {file.parts[0] for file in installed.files or () if file.parts[0] != ".."} - {"__pycache__"}:
            target = Path(str(installed.locate_file(top)))
            if target.exists() and not (site / top).exists() and not top.startswith("__editable__"):
                (site / top).symlink_to(target)


def users_extras() -> list[str]:
    """The extras that README.md lists."""
    table = (ROOT / "README.md").read_text(encoding="utf-8").split("| extra | for |")[1].split("\n\n")[0]
    return [name for row in table.splitlines() for name in re.findall(r"`([\w-]+)`", row.split(" | ")[0])]


def test_an_extra_that_is_almost_there_names_what_it_lacks_and_others_only_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = {
        "": Extra(["numpy"], []),
        "demo": Extra(["confluent-kafka", "onnxruntime"], ["pillow"]),
        "kafka": Extra(["confluent-kafka"], []),
        "schemas": Extra(["a"], ["b", "c", "d"]),
        "tensorflow": Extra([], ["tensorflow", "tf-keras"]),
    }
    monkeypatch.setattr("streamer.cli.doctor.packages.extras", lambda: known)
    texts = {line.part: line.text for line in packages()}
    assert texts["extras"] == "kafka"
    assert texts["not installed"] == "demo (all but pillow), schemas, tensorflow"


def test_an_installation_without_any_extra_gets_its_page_too(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    core_only(site)
    code = tmp_path / "code"
    code.mkdir()
    for package in ("streamer_native", "protos", "pipelines", "connectors", "streamer"):
        (code / package).symlink_to(ROOT / package)
    (tmp_path / "service.yaml").write_text(
        "source: {type: kafka, topics: in}\npipeline: []\nsink: {type: kafka, topic: out}\n"
    )
    program = f"import sys; sys.path[:0] = [{str(site)!r}, {str(code)!r}]; from streamer.cli import main; main()"
    command = [sys.executable, "-S", "-c", program, "doctor", "service.yaml", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2, done.stdout + done.stderr
    *general, service = json.loads(done.stdout)["sections"]
    lines = {line["part"]: line for section in general for line in section["lines"]}
    assert not [line for line in lines.values() if line["state"] == "wrong"]
    assert not {"kafka", "onnx", "mqtt"} & set(lines["extras"]["text"].split(", "))
    absent = lines["not installed"]["text"]
    assert len(absent) < 400
    assert set(users_extras()) - set(lines["extras"]["text"].split(", ")) == set(
        re.sub(r" \([^)]*\)", "", absent).split(", ")
    )
    assert not {"dev", "docs"} & set(re.findall(r"[\w-]+", absent))
    assert not {"Kafka", "ONNX Runtime", "OpenCV", "PyAV"} & lines.keys()
    advice = [line["text"] for line in service["lines"] if line["part"] == "source kafka"]
    assert "pip install 'streamer-inference[kafka]'" in advice[0]
