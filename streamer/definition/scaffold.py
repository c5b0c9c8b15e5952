"""The files of a new service: small, complete, and ready to run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Final, Literal

from connectors.codecs.registry import CODECS, codec_of
from connectors.message import Message, records_of
from pipelines.data.batch import Batch
from pipelines.data.data import Data
from pipelines.errors import DefinitionError, MissingPackageError, StreamerError

Kind = Literal["kafka", "mqtt", "http", "file", "memory", "view"]
"""The type of a new service's sink."""
SourceKind = Literal["kafka", "mqtt", "http", "file", "memory", "camera"]
"""The type of a new service's source."""

_WITHOUT_CODEC: Final = ("file", "camera", "view")
"""Types of sources and sinks that have no codec, because their payloads have a fixed format."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")

_SOURCES: Final[Mapping[SourceKind, str]] = {
    "kafka": """source:
  type: kafka
  bootstrap: $${KAFKA_BOOTSTRAP_SERVERS:-localhost:9092}
  topics: [$name.in]
  group: $name
""",
    "mqtt": """source:
  type: mqtt
  url: mqtt://$${MQTT_BROKER:-localhost:1883}
  topics: $name/in
  codec: json
""",
    "http": """source:
  type: http
  listen: 127.0.0.1:8000
  codec: json
""",
    "file": """source:
  type: file
  path: input.jsonl
  format: jsonl
""",
    "memory": """source:
  type: memory
  topic: $name.in
""",
    "camera": """source:
  type: camera
  cameras:
    test: lavfi:testsrc2=size=640x360:rate=10  # a test picture; a camera is rtsp://USER:PASSWORD@HOST/PATH
  each: {fps: 2}
  into: {key: camera, timestamp: time}
""",
}

_SINKS: Final[Mapping[Kind, str]] = {
    "kafka": """sink:
  type: kafka
  bootstrap: $${KAFKA_BOOTSTRAP_SERVERS:-localhost:9092}
  topic: $name.out
dead_letter:
  type: kafka
  bootstrap: $${KAFKA_BOOTSTRAP_SERVERS:-localhost:9092}
  topic: $name.dead
""",
    "mqtt": """sink:
  type: mqtt
  url: mqtt://$${MQTT_BROKER:-localhost:1883}
  topic: $name/out
  codec: json
dead_letter:
  type: mqtt
  url: mqtt://$${MQTT_BROKER:-localhost:1883}
  topic: $name/dead
""",
    "http": """sink: {type: http}  # to the clients that asked
""",
    "file": """sink:
  type: file
  path: output.jsonl
  format: jsonl
dead_letter:
  type: file
  path: dead.jsonl
  format: jsonl
""",
    "memory": """sink:
  type: memory
  topic: $name.out
dead_letter:
  type: memory
  topic: $name.dead
""",
    "view": """sink: {type: view, listen: "127.0.0.1:8090"}  # open http://127.0.0.1:8090
""",
}

_SERVICE = """# Try it: streamer check $name.yaml, streamer test $name.yaml, streamer run $name.yaml
name: $name
${source}pipeline: $name.pipeline.yaml
keep: [$kept]
$sink"""

_PIPELINE = """# The steps that each record goes through. `streamer steps` lists all types.
steps:
  - "@type": FUNCTION
    name: score
    function: ${module}_steps:score
"""

_STEPS = '''"""Steps of $name in Python."""

from pipelines import Data


def score(data: Data) -> Data | None:
    """Replace this by your own function. A `None` drops the record, an error sends it to the dead letter."""
    if not data["values"]:
        return None
    mean = float(data.get_ndarray("values").mean())
    return Data({"mean": mean, "label": "high" if mean > 0.5 else "low"})
'''

_CAMERA_STEPS = '''"""Steps of $name in Python."""

from pipelines import Data


def score(data: Data) -> Data | None:
    """Replace this by your own function. A `None` drops the record, an error sends it to the dead letter."""
    mean = float(data["image"].get_as("numpy").mean()) / 255
    if mean < 0.01:
        return None
    return Data({"mean": mean, "label": "bright" if mean > 0.5 else "dark"})
'''

_CASES: Final[Mapping[str, str]] = {
    "high.yaml": """# A record, and its expected result.
input: {id: 7, values: [0.25, 0.75, 1.0]}
expect: {id: 7, mean: 0.6666667, label: high}
""",
    "nothing.yaml": """input: {id: 8, values: []}
expect: []  # it is dropped
""",
    "broken.yaml": """input: {id: 9}
fails: score  # the step in which it fails
""",
}

_WHITE = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAAAAABX3VL4AAAADklEQVQIHWP8z8D4nwEABwgCAYqbJ/4AAAAASUVORK5CYII="
_BLACK = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAAAAABX3VL4AAAADklEQVQIHWNkYGBkYAAAAA8AAzBd8eYAAAAASUVORK5CYII="

_CAMERA_CASES: Final[Mapping[str, str]] = {
    "bright.yaml": f"""# A record, here a white picture, and its expected result. {{"@file": "a.jpg"}} reads a file.
key: gate
input: {{image: {{"@ImageFormat": PNG, "@ImageData": "{_WHITE}"}}}}
expect: {{mean: 1.0, label: bright, camera: gate}}
""",
    "black.yaml": f"""input: {{image: {{"@ImageFormat": PNG, "@ImageData": "{_BLACK}"}}}}
expect: []  # it is dropped
""",
    "broken.yaml": """input: no picture
fails: decode  # the step in which it fails
""",
}

_INPUT = '{"id": 1, "values": [0.25, 0.75, 1.0]}\n{"id": 2, "values": [0.125, 0.25]}\n'

_RUN: Final[Mapping[SourceKind, str]] = {
    "kafka": """With a broker that runs in a terminal of its own, and the service in another one:

    streamer broker --topic $name.in:4 --topic $name.out --topic $name.dead
    streamer run $name.yaml

    streamer send $name.yaml input.jsonl
    streamer tap $name.yaml --from earliest --count 2
""",
    "mqtt": """With a broker that runs in a terminal of its own, and the service in another one:

    streamer broker --mqtt
    streamer run $name.yaml

The clients of mosquitto (the package mosquitto-clients) show the results, and send records, a line each:

    mosquitto_sub -v -t '$name/#'
    mosquitto_pub -q 1 -t $name/in -l < input.jsonl
""",
    "http": """    streamer run $name.yaml

It answers at http://127.0.0.1:8000/v1/$name; in another terminal:

    streamer send --http http://127.0.0.1:8000/v1/$name input.jsonl
""",
    "file": """    streamer run $name.yaml    # reads input.jsonl, writes output.jsonl
""",
    "memory": """In a program of yours, `with streamer.load("$name.yaml"):` runs it in the background; records go into
`connectors.memory.memory_topic("$name.in")`, results come from `memory_topic("$name.out")`.
""",
    "camera": """    streamer check $name.yaml --connect    # what do the cameras show?
    streamer run $name.yaml                # until Ctrl-C
""",
}

_README = """# $name

| | |
| --- | --- |
| `$name.yaml` | the service: where records come from, where results go |
| `$name.pipeline.yaml` | the steps |
$code| `cases/` | records, and their expected results |
$input
    streamer check $name.yaml
    streamer test $name.yaml

$run"""


def files_of(
    name: str, source: SourceKind, sink: Kind, *, codec: str | None = None, model: Path | None = None
) -> dict[str, str | bytes]:
    """The files of a new service by their paths in its folder.

    `codec` is the codec of payloads on a bus; `model` an ONNX model that is copied and run instead of a step in Python.
    Raises `DefinitionError` for a name that is not letters, digits, `-` and `_`, a letter first, and for a codec that
    is unknown, or cannot write the sample records; also the errors of `files_for_model`.
    """
    if _NAME.fullmatch(name) is None:
        raise DefinitionError(f'invalid service name "{name}"; use letters, digits, - and _, a letter first')
    if sink == "http" and source != "http":
        raise DefinitionError("a sink of type http answers clients that ask the service: --source http")
    words = {"name": name, "module": name.replace("-", "_"), "kept": "camera, time" if source == "camera" else "id"}
    # The inserted parts are templates themselves, and filled first.
    if codec is not None:
        CODECS.get(codec)
    parts = {key: Template(text).substitute(words) for key, text in _parts(source, sink, codec).items()}
    parts["code"] = f"| `{words['module']}_steps.py` | steps in Python |\n"
    if model is not None and (detector := _around_a_detector(name, words, parts, model, source)) is not None:
        return detector
    if model is not None:
        files = _around_a_model(name, words, parts, model, source)
        _check_codec(codec, source, str(files["input.jsonl"]))
        return files
    _check_codec(codec, source, _INPUT)
    templates = {
        f"{name}.yaml": _SERVICE,
        f"{name}.pipeline.yaml": _PIPELINE,
        f"{words['module']}_steps.py": _CAMERA_STEPS if source == "camera" else _STEPS,
        "README.md": _README,
    }
    filled: dict[str, str | bytes] = {
        path: Template(text).substitute(words, **parts) for path, text in templates.items()
    }
    if source != "camera":
        filled["input.jsonl"] = _INPUT
    cases = _CAMERA_CASES if source == "camera" else _CASES
    return {**filled, **{f"cases/{path}": text for path, text in cases.items()}}


def _around_a_model(
    name: str, words: Mapping[str, str], parts: Mapping[str, str], model: Path, source: SourceKind
) -> dict[str, str | bytes]:
    from streamer.definition.modelscaffold import files_for_model

    if source == "camera":
        raise DefinitionError(
            "--model is for records of values; for cameras begin without it and add the model's steps"
        )
    files = files_for_model(model)
    parts = {**parts, "code": f"| `{model.name}` | the model |\n"}
    return {
        f"{name}.yaml": Template(_SERVICE).substitute(words, **parts),
        f"{name}.pipeline.yaml": files.pop("pipeline"),
        "README.md": Template(_README).substitute(words, **parts),
        **files,
    }


def _around_a_detector(
    name: str, words: Mapping[str, str], parts: Mapping[str, str], model: Path, source: SourceKind
) -> dict[str, str | bytes] | None:
    """The files of a service around a model that is a detector; `None` if it is none."""
    from streamer.definition.detectorscaffold import files_for_detector, is_detector

    if not is_detector(model):
        return None
    if source != "camera":
        raise DefinitionError(f"{model} is a detector, which takes pictures: --source camera")
    files = files_for_detector(model)
    parts = {**parts, "code": f"| `{model.name}` | the model |\n"}
    return {
        f"{name}.yaml": Template(_SERVICE).substitute(words, **parts),
        f"{name}.pipeline.yaml": files.pop("pipeline"),
        "README.md": Template(_README).substitute(words, **parts),
        **files,
    }


def create(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write the files. Raises `StreamerError` if the folder is not empty, or cannot be written."""
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise StreamerError(f"{folder} exists already, and is not overwritten; choose another name or --folder")
        for path, text in files.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text if isinstance(text, bytes) else text.encode())
    except OSError as error:
        raise StreamerError(f"{folder}: cannot be written: {error.strerror or error}") from error


def _with_codec(text: str, kind: SourceKind | Kind, codec: str | None) -> str:
    if codec is None or kind in _WITHOUT_CODEC:
        return text
    text = text.replace("  codec: json\n", "")
    # Failed records go to the dead letter as they came, without a codec.
    return text.replace(f"  type: {kind}\n", f"  type: {kind}\n  codec: {codec}\n", 1)


def _check_codec(codec: str | None, source: SourceKind, records: str) -> None:
    """Raise `DefinitionError` unless the codec, without options, carries the first of these records."""
    if codec is None or source in _WITHOUT_CODEC:
        return
    record = json.loads(records.splitlines()[0])
    try:
        used = codec_of(codec)
        encoded = used.encode(Batch.of([Data(record)]))
        if not isinstance(encoded.values[0], bytes | None):
            raise DefinitionError("it is for objects, and a bus has bytes")
        decoded = used.decode(records_of([Message(encoded.values[0])], "new"), None)
        for error in [*encoded.failed.values(), *decoded.failed.values()]:
            raise error
        (values,) = decoded.batch.to_list()
        plain = [(values.get(key), value) for key, value in record.items() if not isinstance(value, list)]
        # Of a tensor codec a number is an array, which compares with each of its elements.
        if any(type(read) is not type(value) or read != value for read, value in plain):
            raise DefinitionError(f"of {json.dumps(record)[:200]} it makes other values")
    except MissingPackageError:
        raise
    except StreamerError as error:
        raise DefinitionError(
            f"--codec {codec}: by its name alone it does not carry such records ({error}); begin with --codec json, "
            f"and write {codec} with its options into the service file then"
        ) from error


def _parts(source: SourceKind, sink: Kind, codec: str | None) -> dict[str, str]:
    given = "" if source == "camera" else "| `input.jsonl` | records to try it with |\n"
    return {
        "source": _with_codec(_SOURCES[source], source, codec),
        "sink": _with_codec(_SINKS[sink], sink, codec),
        "run": _RUN[source],
        "input": given,
    }
