"""The compiled extension: see `native/src/lib.rs`."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

VERSION: str
"""Version of the extension; the one that belongs to this source tree is `pipelines.hotpath.EXPECTED`."""
SOURCES: str
"""CRC-32 of the sources that it was built of, in hexadecimal; see `native/build.rs`."""

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

Part = tuple[str, int, int, int, int, int, int, tuple[int, ...], int, int, int]
"""A column of a block: (key, form, line, mask, whole, first, element, shape, total, offset, splits).

`native/src/columnar/core/block.rs` says what each form is, and what is where; a place of -1 is none.
"""
Found = tuple[Block, int, int, tuple[int, int], list[int] | None, list[Part]]
"""What was read: (block, rows, lines, rare, odd, parts).

The block begins with `int64 (lines, rows)`, line 0 being the positions of the rows' records; `rare` says where in it
rows, starts and lengths of the values of rare keys are, `int64 (3, n)`, and n; `odd` are the positions of the records
that are left to plain Python, rising (`None`: none); there is a part for each key.
"""

class Block:
    """Bytes, read-only, through the buffer protocol. Let go of, they are used again for another block."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Reader:
    """Takes ProtoData messages apart, and reads the values of the keys `wanted`."""

    def __new__(cls, wanted: list[str], longest: int, most: int) -> Reader:
        """Messages of more than `longest` bytes or `most` entries are left to protobuf."""

    def read(self, buffer: Bytes, starts: Ints, lengths: Ints) -> tuple[Found, list[tuple[int, int, int]] | None]:
        """Messages `buffer[starts[i]:starts[i] + lengths[i]]`: none where the length is -1, something else where -2.

        Gives the columns, and entries of metadata as (row, start, length). Raises `ValueError` for a message that does
        not lie in the buffer.
        """

class AvroProgram:
    """The types of a schema, and what is made of their values."""

    def __new__(cls, types: list[tuple[int, int, Sequence[int], Sequence[str | None], Any]]) -> AvroProgram:
        """As `connectors.codecs.schemas.avrotypes` makes them. Raises `ValueError` for types that are none."""

    def values(self, key: str, buffer: Bytes, starts: Ints, lengths: Ints) -> list[Any]:
        """The values of a field that were read before, as fastavro gives them; `None` where the length is negative.

        Raises `ValueError` for bytes that are no value of the field, and what a function of a logical type raises.
        """

class AvroReader:
    """Takes Avro records apart, and reads the values of the fields `wanted`."""

    def __new__(cls, program: AvroProgram, wanted: list[str], prefix: bytes, longest: int) -> AvroReader:
        """Records stand behind `prefix`. Payloads of more than `longest` bytes are left to Python."""

    def read(self, buffer: Bytes, starts: Ints, lengths: Ints) -> Found:
        """Payloads `buffer[starts[i]:starts[i] + lengths[i]]`: none where the length is -1, something else where -2.

        Raises `ValueError` for a payload that does not lie in the buffer.
        """

def avro_encoded(rows: int, prefix: bytes, columns: list[tuple[Any, ...]]) -> Block | None:
    """Flat records of these columns behind `prefix` each, as from `join`; `None` if a value has no room in its type.

    A column is (form, kind, number, before, absent, present, ...): form and what follows as
    `connectors.codecs.schemas.compiledavrowriter` has them, kind and number as the types of `AvroProgram`. `before`
    stands before each value, `absent` (`None`: then nothing can be written) where there is none; `present`, one byte a
    row, says of numbers where they are (`None`: everywhere). Numbers are int64, or float64 for floats. Raises
    `ValueError` for a column that is none, `BufferError` for memory that is not contiguous.
    """

class JsonReader:
    """Takes records of plain JSON apart, and reads the values of the keys `wanted`."""

    def __new__(
        cls,
        wanted: list[str],
        fields: list[tuple[str, list[tuple[str, int | None]]]],
        at: list[tuple[str, int | None]],
        outer: list[tuple[str, list[tuple[str, int | None]]]],
        each: bool,
        bare: bool,
        nan_is_missing: bool,
        limits: tuple[int, ...],
        types: list[tuple[str, str]],
    ) -> JsonReader:
        """`fields` are keys and the steps of their pointers, with the number of the element that a step may be; `at`
        are the steps from a payload to its record, or with `each` to the array of its records, and `outer` is as
        `fields`, of values of the payload; `each`: elements and lines are rows; `bare`: payloads are values, of the
        first field; `nan_is_missing`: NaN and infinity as bare words are as null; `limits` are bytes, depth, elements
        and keys: what may exceed them is left to Python; `types` are keys and the types of their values
        (`pipelines.wire.stated`)."""

    def read(self, buffer: Bytes, starts: Ints, lengths: Ints) -> Found:
        """Payloads `buffer[starts[i]:starts[i] + lengths[i]]`: none where the length is -1, something else where -2.

        With `each` a payload may have several rows, or none. Raises `ValueError` for a payload that does not lie in the
        buffer.
        """

def json_encoded(rows: int, columns: list[tuple[Any, ...]], failed: list[int]) -> Block:
    """Objects of these columns, as from `join`; none (-1) for the positions `failed`, which rise.

    A column is one of (`JSON`, prefix, buffer, starts, lengths), (`TEXTS`, prefix, buffer, starts, lengths) and
    (`ARRAYS`, prefix, dtype, shape, values, present, whole), with the numbers that `pipelines.wire.compiled_json` gives
    these names. Raises `ValueError` for a column that is none, `BufferError` for memory that is not contiguous.
    """

def inference_request(text: bytes) -> tuple[bytes, str | None, list[bytes | Block]] | None:
    """The JSON of a request of the Open Inference Protocol, taken apart: the rest, the id, and the data of inputs.

    In the rest the number of elements stands in place of each list that was read, an empty text in place of the id
    (`None`: there was none). Data are little-endian in C order. `None` for what is not valid or not plain.
    """

def inference_entries(rows: int, head: bytes, dtype: str, values: Any) -> list[bytes | None]:
    """An array of `rows` rows in JSON: behind `head` the numbers of a row as a list, and the end of an object.

    `None` for a row with numbers that are not finite. Raises `ValueError` for a dtype that it does not write, and for
    bytes that are not these rows, `BufferError` for memory that is not contiguous.
    """

def join(values: list[Any]) -> Block:
    """`bytes` put one after the other, behind `int64 (2, N)`: their starts and lengths (-1: `None`, -2: no `bytes`)."""

def gathered(buffer: Bytes, starts: Ints, lengths: Ints) -> Block:
    """The same spans one after the other, as from `join`."""

def texts(buffer: Bytes, starts: Ints, lengths: Ints, missing: object) -> list[Any]:
    """The spans as `str`, `missing` where the length is negative."""

def strings(buffer: Bytes, starts: Ints, lengths: Ints, missing: object) -> list[Any]:
    """The spans as `bytes`, `missing` where the length is negative."""

def are_texts(buffer: Bytes, starts: Ints, lengths: Ints) -> bool:
    """Whether all spans are UTF-8, those of a negative length aside."""

def encoded(rows: int, columns: list[tuple[Any, ...]], failed: list[int]) -> Block:
    """Messages of these columns, as from `join`; none (-1) for the positions `failed`.

    A column is one of (`FIXED`, head, tail, size, values, present), (`INTEGERS`, key, values, present), (`SPANS`, key,
    bytes, buffer, starts, lengths), (`LOOSE`, key, bytes, values), (`WIRE`, buffer, starts, lengths) and (`ENTRIES`,
    values), with the numbers that `pipelines.wire.compiled_write` gives these names. Raises `OverflowError` for a
    message that is too long, `UnicodeEncodeError` for a string that cannot be written, `BufferError` for memory that
    is not contiguous, `TypeError` and `ValueError` for a column that is none.
    """

def kafka_load(path: str) -> tuple[int, bool]:
    """Find librdkafka's functions behind the loaded library at `path`: its version, whether it can load plug-ins.

    The version is `0xMMmmrrpp`. Raises `OSError` that names what is missing.
    """

def kafka_expect(producer: bool) -> None:
    """The next client that this thread makes with this plug-in is the one that is taken next.

    A `producer` is told that librdkafka reports failures only, so nobody else may produce with it.
    """

class KafkaSpans(Protocol):
    """What is used of `pipelines.data.spans.Spans`."""

    buffer: Bytes
    starts: Ints
    lengths: Ints

class KafkaHeaders(Protocol):
    """What is used of `connectors.headers.Headers`."""

    @property
    def names(self) -> KafkaSpans: ...
    @property
    def values(self) -> KafkaSpans: ...
    @property
    def starts(self) -> Ints: ...
    @property
    def counts(self) -> Ints: ...

class KafkaReader:
    """Takes the records of one consumer of confluent-kafka's. After `close` what reads raises `RuntimeError`."""

    def __new__(cls) -> KafkaReader:
        """Of the consumer that this thread made since `kafka_expect`. Raises `RuntimeError` if there is none."""

    def begin(self, topic: str, partition: int) -> None:
        """From now on this partition's records come here. To be called before it is assigned."""

    def end(self, topic: str, partition: int) -> None:
        """They do not any more; those that were not taken are dropped."""

    def forget(self, topic: str, partition: int) -> None:
        """Records of this partition that came and were not taken are dropped."""

    def receive(self, count: int, milliseconds: int) -> tuple[int, list[tuple[int, str, int, int, str]]]:
        """Wait until `count` more records are here, or so long.

        Gives how many are held then, and the errors that came with them as (code, topic, partition, offset, text).
        """

    @property
    def held(self) -> int:
        """How many records came and were not taken."""

    @property
    def held_bytes(self) -> int:
        """Payload and key bytes of these."""

    def take(
        self, max_records: int, max_bytes: int, headers: bool
    ) -> tuple[Block, int, list[int], int, int, list[tuple[str, int, int, int, int, int]]]:
        """A block of N records, at most so many and about so many bytes, grouped by partition; with their `headers`,
        if these are wanted.

        Gives (memory, N, sizes, number of records with a key, number H of headers, groups). The memory holds
        `int64 (6, N)`: positions, timestamps, starts and lengths (-1: null) of values and of keys; then, where H is not
        0, `int64 (2, N)`: first header and number of headers, and `int64 (4, H)`: starts and lengths of names and of
        values; then the bytes of values, keys and headers, whose `sizes` these three are. A group is (topic, partition,
        first row, row after the last, first position, last position).
        """

    def close(self) -> None:
        """Give everything back, so that the consumer can be closed."""

class KafkaWriter:
    """Puts messages into one producer of confluent-kafka's."""

    def __new__(cls) -> KafkaWriter:
        """Of the producer that this thread made since `kafka_expect`. Raises `RuntimeError` if there is none."""

    def foresee(self, topic: str, partitions: int, partitioner: str) -> None:
        """The topic has so many partitions, among which librdkafka's property `partitioner` chooses. Messages that will
        go to the same are handed over together then, which is cheaper (`native/src/kafka/order.rs`). It need not be
        right.
        """

    def write(
        self,
        topics: list[str],
        values: KafkaSpans,
        keys: KafkaSpans | None = None,
        headers: KafkaHeaders | None = None,
        timestamps: Ints | None = None,
        codes: Ints | None = None,
        partitions: Ints | None = None,
        rows: list[int] | None = None,
    ) -> tuple[list[int], list[tuple[int, int]], list[int]]:
        """Hand over the messages of these rows, in this order (all, in an order that keeps that of each key): the
        rows that the queue had no room for, in the order to go on with, the indices and error codes of those before
        that were refused, and the marks of all the others.

        Message i goes to `topics[codes[i]]` (else to the first topic), there to `partitions[i]` (else to the one that
        its key chooses), at `timestamps[i]` milliseconds (0 or less: now). Raises `ValueError` for columns that do not
        fit together or reach beyond their buffers, and `RuntimeError` once the producer is closed.
        """

    @property
    def outstanding(self) -> int:
        """How many messages were handed over and are neither acknowledged nor lost."""

    def finished(self) -> tuple[list[int], list[tuple[int, int, int]]]:
        """Take the marks whose messages are all acknowledged or lost, and (code, mark, index) of messages that were
        lost: all of those marks, and maybe some of others. A message without a value is said to be lost, too, when
        another one was that was under way with it.
        """
