"""The messages that programs read, and their expected results."""

from __future__ import annotations

import io
import itertools
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime as ort

from benchmarks.programs.avrowork import RESULT, record_schema
from benchmarks.rows import Content
from protos import data_pb2 as pb

FIRST_STAMP = 1_760_000_000_000_000
"""`ts` of message 0, in microseconds; that of message i is i more, so that it names the message."""
_ARRAYS = 1024
_DEVICES = 5000
_CHECKED = 97


class Payload(NamedTuple):
    """One message of a topic."""

    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]] | None


class Messages:
    """Messages of one content, by number, always the same."""

    def __init__(self, content: Content) -> None:
        rng = np.random.default_rng(7)
        self.content = content
        self.arrays = rng.standard_normal((_ARRAYS, content.floats)).astype(np.float32)
        self._xs = [_array_entry(array) for array in self.arrays]
        self._short = _array_entry(self.arrays[0][:-1])
        self._devices = [f"sensor-{number * 7919 % 100_003}" for number in range(_DEVICES)]
        self._ids = [_entry("device_id", sValue=device, type=pb.DataScheme.STRING) for device in self._devices]
        self._stamp = pb.DataMap(mapItems={"ts": pb.DataScheme(type=pb.DataScheme.INT64)})
        self._jsons = [_json_parts(content, array.tolist()) for array in self.arrays] if content.json else []
        self._avro: Any = None
        if content.avro:
            import fastavro

            self._avro = fastavro.parse_schema(record_schema(content.features))
        self._orders = list(itertools.permutations(range(3)))[: content.orders]

    def message(self, number: int, stamp: int | None = None) -> Payload:
        """Message `number`; `stamp` replaces its `ts`, in microseconds."""
        content, at = self.content, number % _DEVICES
        headers = None
        if content.json:
            stamp = FIRST_STAMP + number if stamp is None else stamp
            device = self._devices[at]
            head, tail = self._jsons[number % _ARRAYS]
            return Payload(device.encode(), f'{head}"device_id": "{device}", "ts": {stamp}{tail}'.encode(), None)
        if content.avro:
            return self._avro_message(number, FIRST_STAMP + number if stamp is None else stamp)
        if content.headers:
            headers = [("traceparent", b"00-%032x-%016x-01" % (number + 1, number + 1)), ("source", b"bench")]
        if not content.keep:
            return Payload(b"%d" % number, self._xs[number % _ARRAYS], headers)
        key = self._devices[at].encode()
        if self.is_poison(number) and number % 200 < 100:
            return Payload(key, b"\x0a\xff\xff\xff\xff\xff\xff broken %d" % number, headers)
        x = self._short if self.is_poison(number) else self._xs[number % _ARRAYS]
        self._stamp.mapItems["ts"].iValue = FIRST_STAMP + number if stamp is None else stamp
        parts = (x, self._ids[at], self._stamp.SerializeToString())
        return Payload(key, b"".join([parts[place] for place in self._orders[at % len(self._orders)]]), headers)

    def _avro_message(self, number: int, stamp: int) -> Payload:
        import fastavro

        device, numbers = self._devices[number % _DEVICES], self.arrays[number % _ARRAYS].tolist()
        values = dict(zip(self.content.features, numbers, strict=True))
        written = io.BytesIO()
        fastavro.schemaless_writer(written, self._avro, {"device_id": device, "ts": stamp, **values})
        return Payload(device.encode(), written.getvalue(), None)

    def is_poison(self, number: int) -> bool:
        """Whether this message is broken."""
        return self.content.poison and number % 100 == 7

    def poisonous(self, count: int) -> int:
        """How many of the first `count` messages (a multiple of 200) are broken."""
        return count // 100 if self.content.poison else 0


class Checker:
    """Compares results with those of the model for the messages."""

    def __init__(self, messages: Messages, model: Path) -> None:
        self._messages = messages
        self._result: Any = RESULT
        session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
        self._expected = session.run(None, {"x": messages.arrays})[0]

    def number(self, key: bytes, value: bytes, headers: Any) -> int:
        """Which message this is the result of. Raises `ValueError` if it is wrong; of values a sample is compared."""
        content = self._messages.content
        if content.json:
            return self._plain_number(key, json.loads(value))
        if content.avro:
            import fastavro

            found: Any = fastavro.schemaless_reader(io.BytesIO(value), self._result, None)
            return self._plain_number(key, found)
        items = pb.DataMap.FromString(value).mapItems
        number = items["ts"].iValue - FIRST_STAMP if content.keep else int(key)
        if number % _CHECKED:
            return number
        message = self._messages.message(number)
        if key != message.key:
            raise ValueError(f"result {number} has the key {key!r} instead of {message.key!r}")
        # Frameworks may add headers of their own.
        if any(header not in (headers or ()) for header in message.headers or ()):
            raise ValueError(f"result {number} lacks headers of its message: {headers}")
        if set(items) != ({"y", "device_id", "ts"} if content.keep else {"y"}):
            raise ValueError(f"result {number} has the values {sorted(items)}")
        if content.keep and items["device_id"].sValue.encode() != key:
            raise ValueError(f"result {number} has another device_id than its message")
        array = items["y"].ndValue
        expected = self._expected[number % _ARRAYS]
        if list(array.shape) != list(expected.shape) or not np.allclose(
            np.frombuffer(array.array[0], "<f4"), expected, rtol=1e-4, atol=1e-5
        ):
            raise ValueError(f"result {number} has other numbers than the model gives")
        return number

    def _plain_number(self, key: bytes, found: dict[str, Any]) -> int:
        number: int = found["ts"] - FIRST_STAMP
        if number % _CHECKED:
            return number
        if set(found) != {"y", "device_id", "ts"} or found["device_id"].encode() != key:
            raise ValueError(f"result {number} has the values {found}")
        if not np.allclose(found["y"], self._expected[number % _ARRAYS], rtol=1e-2, atol=1e-3):
            raise ValueError(f"result {number} has other numbers than the model gives")
        return number


def _json_parts(content: Content, numbers: list[float]) -> tuple[str, str]:
    """The text before and behind device and time of a message, as `json.dumps` writes it by default."""
    # Sensors give few digits, other programs all that they have.
    few = [round(number, 4) for number in numbers]
    values = dict(zip(content.features, few, strict=True)) if content.features else {"x": numbers}
    others = {f"field_{at}": f"some text {at}" if at % 3 == 2 else at * 1.25 for at in range(content.others)}
    head, tail = json.dumps({**others, "": 0}), json.dumps({"": 0, **values})
    return head.removesuffix('"": 0}'), tail.removeprefix('{"": 0')


def _array_entry(array: np.ndarray[Any, np.dtype[np.float32]]) -> bytes:
    value = pb.NDArray(shape=array.shape, type=pb.NDArray.FLOAT, array=[array.tobytes()])
    return _entry("x", ndValue=value, type=pb.DataScheme.NDARRAY)


def _entry(key: str, **value: Any) -> bytes:
    return pb.DataMap(mapItems={key: pb.DataScheme(**value)}).SerializeToString()
