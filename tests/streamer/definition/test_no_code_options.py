"""`--no-code`: options that are passed through to a library are refused unless they are known to be harmless."""

from __future__ import annotations

import collections.abc
import http.server
import json
import threading
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import av
import numpy as np
import pytest
import yaml
from pydantic import BaseModel

import streamer
from connectors.camera.address import address
from connectors.camera.options import ENCODER_OPTIONS, ENCODERS, INPUT_FORMATS, INPUT_OPTIONS
from connectors.codecs.registry import CODECS
from connectors.codecs.schemas.config import CLIENT_OPTIONS
from connectors.kafka.client.userproperties import FREE, OF_SINKS, OF_SOURCES
from connectors.registry import SINKS, SOURCES
from pipelines.errors import DefinitionError
from pipelines.harmless import Harmless
from pipelines.plugins.registry import TYPE_GROUPS, default_registry
from streamer.definition.nocode import VARIABLE, NoCode
from streamer.definition.refusals import refused
from streamer.definition.service import Service

SECRET = "hunter2-topsecret"
MEMORY = {"type": "memory", "topic": "t"}
CAMERA = {"type": "camera", "cameras": {"c": "lavfi:testsrc2=size=64x48:rate=10:duration=1"}}


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "private").mkdir()
    monkeypatch.chdir(tmp_path)


def written(tmp_path: Path, **fields: Any) -> Path:
    file = tmp_path / "theirs" / "mine.yaml"
    file.write_text(yaml.safe_dump({"source": MEMORY, "pipeline": [], "sink": MEMORY, **fields}, sort_keys=False))
    return file


def why(tmp_path: Path, **fields: Any) -> list[str]:
    """What is refused of a service: key and reason of each."""
    return [one.why for one in refused(streamer.load(written(tmp_path, **fields), no_code=NoCode()))]


# Mappings whose names are not options of a library: names of values, topics, users, and the like.
NOT_OPTIONS = {
    "CloudEventsConfig.attributes": "names of attributes and values",
    "CloudEventsConfig.write": "names of attributes, and their values",
    "CsvConfig.types": "names of columns and their types",
    "JsonConfig.fields": "names of values and places in a document",
    "JsonConfig.outer": "names of values and places in a document",
    "JsonConfig.types": "names of values and their types",
    "MsgpackConfig.outer": "names of values and places in a document",
    "MsgpackConfig.types": "names of values and their types",
    "AvroConfig.schema_": "a schema",
    "AvroConfig.reader_schema": "a schema",
    "JsonSchemaConfig.schema_": "a schema",
    "SparkplugConfig.attributes": "names of values",
    "SparkplugConfig.metrics": "names of metrics and values",
    "MqttEndpointSourceConfig.users": "names and passwords of clients",
    "KafkaSinkConfig.add_headers": "headers of messages, which Kafka gives no meaning",
    "MqttSinkConfig.user_properties": "properties of messages, which MQTT gives no meaning",
    "Map.ensure": "conditions",
    "Map.select": "names of values and expressions of a closed language",
    "Lookup.table": "where a table is, whose own fields are looked at",
    "Lookup.by": "names of values and columns",
    "Lookup.take": "names of values and columns",
    "Lookup.types": "names of columns and their types",
    "Function.args": "arguments of a function, which is refused itself",
    "PythonConfig.extra_inputs": "inputs of Python code, which is refused itself",
    "PythonConfig.python_inputs": "inputs of Python code, which is refused itself",
    "PythonConfig.python_outputs": "outputs of Python code, which is refused itself",
    "DocumentParser.table_specific_field_names": "names of fields",
    "DocumentParser.text_extraction_types": "kinds of documents",
    "DrawBoundingBox.class_colors": "labels and colours",
    "DrawPoints.class_colors": "labels and colours",
    "StringSwitch.map": "values and branches",
    "SameDiffTraining.learning_rate_schedule": "a setting that no runner reads",
    "SameDiffTraining.updater": "a setting that no runner reads",
    "RegressionOutput.names": "names of values",
    "Service.runners": "types of steps and names of installed runners",
    "Service.set": "fields of steps, which are looked at in the steps themselves",
    "Variant.set": "fields of steps, which are looked at in the steps themselves",
    "Window.aggregate": "names of values and aggregates",
    "Join.topics": "names of values and topics",
}
EVERYWHERE = {
    "codec": "a codec, whose own fields are looked at",
    "when": "a condition",
    "where": "a condition",
    "into": "names of metadata and values",
    "headers": "names of headers and their types",
    "key": "the codec of keys, whose own fields are looked at",
    "input_names": "names of a model's inputs",
    "output_names": "names of a model's outputs",
    "inputs": "names of a model's inputs",
}


def models() -> Iterator[type[BaseModel]]:
    """Every model that a service file or a definition can fill."""
    found: set[type[BaseModel]] = set()
    registry = default_registry()
    waiting: list[Any] = [Service]
    waiting += [model for known in (SOURCES, SINKS, CODECS) for model in known.load_all().values()]
    for base in TYPE_GROUPS.values():
        waiting += registry.types(base).values()
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            if kind not in found:
                found.add(kind)
                yield kind
                waiting += [info.annotation for info in kind.model_fields.values()]
        else:
            waiting += typing.get_args(kind)


def holds_free_names(annotation: Any) -> bool:
    """Whether a field of this type takes mappings whose names may be anything."""
    origin, arguments = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    if isinstance(origin, type) and issubclass(origin, collections.abc.Mapping):
        value = arguments[-1] if arguments else Any
        value = typing.get_args(value)[0] if typing.get_origin(value) is typing.Annotated else value
        return not (isinstance(value, type) and issubclass(value, BaseModel))
    return any(holds_free_names(one) for one in arguments)


def test_every_field_with_free_options_says_which_are_harmless() -> None:
    unmarked, marked = [], set()
    for model in models():
        for name, info in model.model_fields.items():
            if any(isinstance(one, Harmless) for one in info.metadata):
                marked.add(f"{model.__name__}.{name}")
            elif holds_free_names(info.annotation) and name not in EVERYWHERE:
                unmarked.append(f"{model.__name__}.{name}")
    # A new field of options gets a list: `Annotated[dict[str, str], Harmless(...)]`. One of other names is added above.
    assert not set(unmarked) - set(NOT_OPTIONS)
    assert set(NOT_OPTIONS) <= set(unmarked), "no longer there"
    assert marked == {
        "CameraFields.format",
        "CameraFields.options",
        "Detect.providers",
        "EachCamera.format",
        "EachCamera.options",
        "KafkaSinkConfig.client",
        "KafkaSourceConfig.client",
        "Onnx.providers",
        "RegistryConfig.client",
        "SessionOptions.config",
        "TensorRt.provider_options",
        "VideoSinkConfig.encoder",
        "VideoSinkConfig.options",
    }


def test_no_list_of_harmless_options_has_one_that_is_known_to_open_files_or_run_code() -> None:
    harmful = {
        "protocol_whitelist",
        "graph",
        "graph_file",
        "key_file",
        "cert_file",
        "ca_file",
        "allowed_extensions",
        "allowed_segment_extensions",
        "x264-params",
        "x264opts",
        "x265-params",
        "svtav1-params",
        "aom-params",
        "passlogfile",
        "stats",
        "flags",
        "vstats_file",
        "plugin.library.paths",
        "bearer.auth.custom.provider.function",
    }
    for listed in (INPUT_OPTIONS, ENCODER_OPTIONS, CLIENT_OPTIONS):
        assert not listed.names & (harmful - ({"flags"} if listed is INPUT_OPTIONS else set()))
    assert not INPUT_FORMATS.names & {"lavfi", "concat", "image2", "tty", "x11grab", "sdp", "hls,applehttp"}
    assert not ENCODERS.names & {"h264_v4l2m2m", "h264_vaapi"}


VIDEO = {"type": "video", "url": "udp://127.0.0.1:9", "draw": False}


@pytest.mark.parametrize(
    "options",
    [
        {"preset": "ultrafast", "qp": "0", "x264-params": "dump-yuv=payload.sh"},
        {"x264opts": "dump-yuv=payload.sh"},
        {"x264-params": "pass=1:stats=payload.sh"},
        {"stats": "payload.sh"},
        {"passlogfile": "payload.sh"},
        {"x265-params": "csv=payload.sh"},
    ],
)
def test_an_encoder_writes_no_file_beside_the_video(options: dict[str, str], tmp_path: Path, cli: Any) -> None:
    file = written(tmp_path, source=CAMERA, sink={**VIDEO, "options": options})
    for command in (("check",), ("run",)):
        ended = cli(*command, file, "--no-code")
        assert ended.code == 2, ended
    line = 1 + file.read_text().splitlines().index(f"    {list(options)[-1]}: {list(options.values())[-1]}")
    assert f"mine.yaml:{line}: service mine: sink video: options.{list(options)[-1]} is not known to be" in ended.err
    assert "run without --no-code if you trust who wrote it" in ended.err
    assert not list(tmp_path.rglob("payload*"))


def film(file: Path) -> Path:
    with av.open(str(file), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for _ in range(5):
            frame = av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), "u1"), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return file


def test_an_encoder_with_harmless_options_writes_the_video(tmp_path: Path) -> None:
    shown = film(tmp_path / "theirs" / "film.mp4")
    sink = {"type": "video", "path": "out/{camera}.mp4", "options": {"preset": "ultrafast", "crf": "30", "g": "10"}}
    file = written(tmp_path, source={"type": "camera", "cameras": {"c": str(shown)}}, sink=sink)
    assert streamer.load(file, no_code=NoCode.of(files=[shown, tmp_path / "theirs" / "out"])).run().ok == 5
    assert (tmp_path / "theirs" / "out" / "c.mp4").stat().st_size > 0


def test_an_encoder_that_may_use_a_device_is_refused(tmp_path: Path) -> None:
    (found,) = why(tmp_path, source=CAMERA, sink={**VIDEO, "encoder": "h264_v4l2m2m"})
    assert found.startswith('encoder "h264_v4l2m2m" is not known to be harmless')


@pytest.mark.parametrize(
    "fields",
    [
        {"options": {"key_file": "/root/.ssh/id_rsa"}},
        {"options": {"allowed_segment_extensions": "ALL"}},
        {"options": {"something_new": "1"}},
        {"format": "sdp"},
        {"format": "concat"},
        {"format": "image2"},
    ],
)
def test_a_camera_has_no_options_and_formats_that_may_open_files(fields: dict[str, Any], tmp_path: Path) -> None:
    camera = {"url": "http://127.0.0.1:9/x.m3u8", **fields}
    for source in ({"cameras": {"c": camera}}, {"each": fields, "cameras": {"c": camera["url"]}}):
        (found,) = why(tmp_path, source={"type": "camera", **source})
        assert found.startswith(f"cameras.c.{next(iter(fields))}")
        assert "harmless" in found


@pytest.mark.parametrize("name", ["protocol_whitelist", "graph", "graph_file", "dumpgraph", "format_whitelist"])
@pytest.mark.parametrize("where", ["each", "camera"])
def test_options_that_would_let_a_stream_read_files_cannot_be_set_with_code_either(
    name: str, where: str, tmp_path: Path
) -> None:
    options = {"options": {name: "movie=/etc/passwd:f=tty"}}
    source: dict[str, Any] = {"type": "camera", "cameras": {"c": {"url": "lavfi:color"}}}
    source["each" if where == "each" else "cameras"] = options if where == "each" else {"c": {"url": "x", **options}}
    with pytest.raises(DefinitionError, match=rf"mine\.yaml:\d+: source\.\S+: {name} cannot be set"):
        streamer.load(written(tmp_path, source=source))


def test_a_format_cannot_make_a_graph_of_a_url(tmp_path: Path) -> None:
    source = {"type": "camera", "cameras": {"c": {"url": "movie=secret.txt", "format": "lavfi"}}}
    with pytest.raises(DefinitionError, match="lavfi is said by the url alone"):
        streamer.load(written(tmp_path, source=source))


@pytest.mark.parametrize("graph", ["life=/etc/passwd", "life=filename=/etc/passwd", "cellauto=f=/etc/passwd", "movie"])
def test_no_test_picture_is_made_from_a_file(graph: str) -> None:
    with pytest.raises(ValueError, match="lavfi: makes test pictures"):
        address(f"lavfi:{graph}")


def test_harmless_options_of_a_camera_are_used(tmp_path: Path) -> None:
    shown = film(tmp_path / "theirs" / "film.mp4")
    camera = {"url": "film.mp4", "format": "mp4", "options": {"fflags": "+genpts", "probesize": 5000000}}
    file = written(tmp_path, source={"type": "camera", "cameras": {"c": camera}})
    assert streamer.load(file, no_code=NoCode.of(files=[shown])).run().ok == 5


@pytest.mark.parametrize("url", ["/dev/video0", "/dev/video7", "file:///dev/video0"])
def test_a_camera_of_this_machine_has_to_be_listed(url: str, tmp_path: Path, cli: Any) -> None:
    file = written(tmp_path, source={"type": "camera", "cameras": {"c": url}})
    device = url.removeprefix("file://")
    ended = cli("check", file, "--no-code")
    assert ended.code == 2
    assert f"{device} is not listed" in " ".join((ended.out + ended.err).split())
    assert not refused(streamer.load(file, no_code=NoCode.of(files=[device])))


class Metadata(http.server.BaseHTTPRequestHandler):
    """Stands for a cloud's metadata service and for a registry: remembers what is asked."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(f"{self.path} {self.headers.get('Authorization', '')}")
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps({"access_token": SECRET, "expires_in": 99, "expires_at": 9e9}).encode())

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing on the terminal."""


@pytest.fixture
def metadata() -> Iterator[tuple[str, list[str]]]:
    class Handler(Metadata):
        asked: ClassVar[list[str]] = []

    handler = Handler
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", handler.asked
    server.shutdown()
    server.server_close()
    thread.join(10)


CLOUD = {
    "bearer.auth.credentials.source": "OAUTHBEARER_AZURE_IMDS",
    "bearer.auth.issuer.endpoint.query": "resource=x",
    "bearer.auth.logical.cluster": "x",
    "bearer.auth.identity.pool.id": "y",
}


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_machines_identity_is_sent_to_no_registry(
    wrapped: bool, metadata: tuple[str, list[str]], tmp_path: Path, cli: Any
) -> None:
    url, asked = metadata
    client = {**CLOUD, "bearer.auth.issuer.endpoint.url": url}
    codec: dict[str, Any] = {"type": "avro", "registry": {"url": url, "client": client}}
    if wrapped:
        codec = {"type": "compressed", "codec": codec}
    file = written(tmp_path, source={**MEMORY, "codec": codec}, sink={**MEMORY, "codec": codec})
    (tmp_path / "theirs" / "case.json").write_text('{"input": {"x": 1}, "expect": {"x": 1}}')
    for command in (("check", file, "--connect"), ("run", file), ("test", file, tmp_path / "theirs" / "case.json")):
        ended = cli(*command, "--no-code")
        assert ended.code != 0, ended
        text = " ".join((ended.out + ended.err).split())
        assert "registry.client.bearer.auth.credentials.source may only be OAUTHBEARER or STATIC_TOKEN" in text
    assert asked == []


@pytest.mark.parametrize(
    ("client", "key"),
    [
        ({"basic.auth.credentials.source": "SASL_INHERIT"}, "basic.auth.credentials.source may only be"),
        ({"bearer.auth.credentials.source": "CUSTOM"}, "bearer.auth.credentials.source may only be"),
        ({"bearer.auth.custom.provider.function": "x"}, "bearer.auth.custom.provider.function is not known"),
        ({"something.new": "x"}, "something.new is not known"),
    ],
)
def test_a_registry_is_logged_in_to_by_the_files_own_secrets_only(
    client: dict[str, str], key: str, tmp_path: Path
) -> None:
    codec = {"type": "avro", "registry": {"url": "http://h:1", "client": client}}
    (found,) = why(tmp_path, source={**MEMORY, "codec": codec})
    assert found.startswith(f"codec.registry.client.{key}")


@pytest.mark.parametrize(
    "client",
    [
        {"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.logical.cluster": "x"},
        {"bearer.auth.credentials.source": "OAUTHBEARER", "bearer.auth.client.secret": "x", "proxy": "http://p:1"},
    ],
)
def test_a_registry_with_its_own_secret_is_fine(client: dict[str, str], tmp_path: Path) -> None:
    codec = {"type": "avro", "registry": {"url": "http://h:1", "client": client}}
    assert not why(tmp_path, source={**MEMORY, "codec": codec})


@pytest.mark.parametrize(
    ("client", "refusal"),
    [
        ({"security.protocol": "SASL_SSL"}, "client.security.protocol logs in as this machine"),
        (
            {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "GSSAPI"},
            "client.sasl.mechanisms logs in as this machine",
        ),
        ({"sasl.mechanism": "AWS_MSK_IAM"}, "client.sasl.mechanism may only be"),
        ({"ssl.engine.id": "x"}, "client.ssl.engine.id is not known"),
        ({"offset.store.path": "/tmp/x"}, "client.offset.store.path is not known"),
        ({"sasl.jaas.config": "x"}, "client.sasl.jaas.config is not known"),
        ({"anything": "x"}, "client.anything is not known"),
    ],
)
def test_properties_of_kafka_that_are_not_known_to_be_harmless_are_refused(
    client: dict[str, str], refusal: str, tmp_path: Path
) -> None:
    (found,) = why(tmp_path, sink={"type": "kafka", "bootstrap": "h:1", "topic": "t", "client": client})
    assert found.startswith(refusal)


def test_the_harmless_properties_of_kafka_are_properties_of_kafka() -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    ours = {*OF_SOURCES, *OF_SINKS, "oauth_cb"}
    for name in FREE.names - ours:
        try:
            confluent_kafka.Consumer({"group.id": "g", name: "no such value"}).close()
        except confluent_kafka.KafkaException as error:
            assert "No such configuration property" not in str(error), name  # noqa: PT017 - any other error is fine


NO_DEFINITIONS = [
    f"DB_PASSWORD={SECRET}\n",
    f"root:x:0:0:{SECRET}:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin\n",
    f"- {SECRET}\n",
    f'"{SECRET}"',
    f"machine h login me password {SECRET}\n",
    f"-----BEGIN OPENSSH PRIVATE KEY-----\n{SECRET}\n",
    f"DB_PASSWORD: {SECRET}\n",
    json.dumps({"password": SECRET}),
    json.dumps([SECRET]),
]


def references(file: str) -> dict[str, dict[str, Any]]:
    """Every way to name a file that is read before anything is connected to."""
    step = {"@type": "PIPELINE", "pipeline": file}
    return {
        "pipeline": {"pipeline": file},
        "step": {"pipeline": [step]},
        "nested": {"pipeline": [{"@type": "PIPELINE", "pipeline": {"steps": [step]}}]},
        "graph": {"pipeline": {"outputStep": "a", "steps": {"a": {**step, "@input": "input"}}}},
        "set": {
            "pipeline": [{"@type": "PIPELINE", "name": "inner", "pipeline": "good.yaml"}],
            "set": {"inner.pipeline": file},
        },
        "variant": {
            "pipeline": [{"@type": "PIPELINE", "name": "inner", "pipeline": "good.yaml"}],
            "variants": {"next": {"weight": 1, "set": {"inner.pipeline": file}}},
        },
        "schema": {"source": {**MEMORY, "codec": {"type": "avro", "schema": file}}},
        "reader": {
            "source": {**MEMORY, "codec": {"type": "avro", "schema": {"type": "string"}, "reader_schema": file}}
        },
        "wrapped": {"sink": {**MEMORY, "codec": {"type": "json-schema", "schema": file}}},
        "descriptors": {"source": {**MEMORY, "codec": {"type": "protobuf", "descriptors": file, "message": "M"}}},
        "inner": {
            "source": {**MEMORY, "codec": {"type": "compressed", "codec": {"type": "avro", "schema": file}}},
        },
        "dead letter": {
            "dead_letter": {**MEMORY, "topic": "d", "codec": {"type": "avro", "schema": file}},
        },
        "value": {"name": f"${{file:{file}}}"},
    }


@pytest.mark.parametrize("way", sorted(references("")))
@pytest.mark.parametrize("linked", [False, True])
def test_what_a_refused_file_holds_is_never_told(way: str, linked: bool, tmp_path: Path, cli: Any) -> None:
    (tmp_path / "private" / "secret").write_text(f"root:x:0:0:{SECRET}:/root:/bin/bash\ndaemon:x:1:1\n")
    (tmp_path / "theirs" / "link.yaml").symlink_to(tmp_path / "private" / "secret")
    (tmp_path / "theirs" / "good.yaml").write_text("steps: [{'@type': LOGGING}]")
    (tmp_path / "theirs" / "case.json").write_text('{"input": {"x": 1}, "expect": {"x": 1}}')
    file = written(tmp_path, **references("link.yaml" if linked else str(tmp_path / "private" / "secret"))[way])
    for command in (("check", file), ("run", file), ("test", file, tmp_path / "theirs" / "case.json")):
        ended = cli(*command, "--no-code")
        assert ended.code == 2, ended
        text = " ".join((ended.out + ended.err).split())
        assert SECRET not in text
        assert "is not listed" in text
        assert "mine.yaml:" in text or way in ("set", "variant")


@pytest.mark.parametrize("content", NO_DEFINITIONS)
@pytest.mark.parametrize("way", ["pipeline", "step", "schema", "wrapped"])
def test_what_a_file_holds_that_is_no_definition_is_not_told_with_code_either(
    way: str, content: str, tmp_path: Path, cli: Any
) -> None:
    (tmp_path / "private" / "secret").write_text(content)
    ended = cli("check", written(tmp_path, **references(str(tmp_path / "private" / "secret"))[way]))
    # Any JSON object is a JSON schema.
    assert ended.code == 2 or (way, content[0]) == ("wrapped", "{"), ended
    assert SECRET not in ended.out + ended.err


def test_a_link_to_a_pipeline_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "private" / "good.yaml").write_text("steps: [{'@type': LOGGING}]")
    (tmp_path / "theirs" / "link.yaml").symlink_to(tmp_path / "private" / "good.yaml")
    for pipeline in ("link.yaml", [{"@type": "PIPELINE", "pipeline": "link.yaml"}]):
        file = written(tmp_path, pipeline=pipeline)
        with pytest.raises(DefinitionError, match=r"link\.yaml is not listed"):
            streamer.load(file, no_code=NoCode())
        assert streamer.load(file, no_code=NoCode.of(files=[tmp_path / "private"])).pipeline


@pytest.mark.parametrize("scheme", ["s3", "gs", "az", "hf", "S3"])
def test_a_model_that_is_fetched_with_this_machines_credentials_is_refused(scheme: str, tmp_path: Path) -> None:
    step = {"@type": "ONNX", "modelUri": f"{scheme}://private/m.onnx?sig=secret"}
    (refusal,) = why(tmp_path, pipeline={"steps": [step]})
    assert refusal.startswith(f"the model {scheme}://private/m.onnx is fetched with this machine's credentials")


@pytest.mark.parametrize("uri", ["https://h/m.onnx", "m.onnx", "unknown://h/m.onnx"])
def test_a_model_that_needs_no_credentials_is_not_refused(uri: str, tmp_path: Path) -> None:
    assert not why(tmp_path, pipeline={"steps": [{"@type": "ONNX", "modelUri": uri}]})
