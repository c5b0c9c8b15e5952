"""`protobuf`: payloads are the user's own messages, by their descriptors or by a schema registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from google.protobuf.message import DecodeError, EncodeError
from pydantic import Field, model_validator

from connectors.codec import Codec, Decoded, Encoded
from connectors.codecs.config import CodecConfig, PayloadFields
from connectors.codecs.plainrows import AS_OBJECTS, decode_plain, encode_plain
from connectors.codecs.rows import payload_bytes
from connectors.codecs.schemas import protobufschema
from connectors.codecs.schemas.config import REGISTRY_PACKAGES, RegistryConfig
from connectors.codecs.schemas.framing import Frame, SchemaRef, framed, schema_headers, without_schemas
from connectors.codecs.schemas.protobufschema import MessageTypes
from connectors.codecs.schemas.protobufvalues import MessageForm
from connectors.codecs.schemas.registry import Registered, SchemaRegistry
from connectors.localpath import LocalPath
from connectors.records import Records
from connectors.units import Size
from pipelines.data.batch import Batch
from pipelines.errors import ConnectorError, DefinitionError, WireError
from pipelines.plugins.requirements import Requires
from pipelines.wire.varint import varint

_DEEPEST = 32
"""How deep the message that a frame names may be nested in others."""


class ProtobufConfig(CodecConfig):
    """Protobuf messages of your own: by a file of descriptors that `protoc` made, or by a schema registry."""

    built_by: ClassVar[str] = "connectors.codecs.schemas.protobuf:Protobuf"

    type: Literal["protobuf"] = "protobuf"
    """The type of codec."""
    descriptors: LocalPath | None = None
    """A file of `protoc --include_imports --descriptor_set_out=FILE your.proto`. With a registry it may be left out."""
    message: str | None = Field(default=None, min_length=1)
    """The full name of the message, `plant.Reading`. Needed with `descriptors`; without, payloads name their message, and results are the first message of the schema."""  # noqa: E501
    registry: RegistryConfig | None = None
    """The schema registry, `{url: http://localhost:8081}`, whose ids stand before payloads; without one payloads are bare messages."""  # noqa: E501
    max_bytes: Size = 16 << 20
    """Size of the largest payload; a larger one is an error of its record."""

    @model_validator(mode="after")
    def _some_schema(self) -> ProtobufConfig:
        if self.registry is None and self.descriptors is None:
            raise ValueError("give the codec protobuf descriptors and message, or a registry")
        if self.descriptors is not None and self.message is None:
            raise ValueError("say which message of the descriptors it is: message: NAME")
        return self

    @property
    def needs(self) -> Requires:
        """The packages of the registry's client."""
        return () if self.registry is None else REGISTRY_PACKAGES

    def ask(self) -> str | None:
        """The findings of a request to the registry; for a sink, the schema by which its results are going to be
        written."""
        if self.registry is None:
            return None
        return SchemaRegistry(self.registry).about(self.sink_topic, self.message or "", "register a schema")

    def read_fields(self, topic: str | None = None) -> PayloadFields | None:
        """Those of the message that it names; with a topic, those of its latest schema."""
        return self.with_sink_topic(topic).written_fields(ask=topic is not None)

    def written_fields(self, *, ask: bool = False) -> PayloadFields | None:
        """Those of the message of results, which with `ask` may be that of the subject."""
        if self.descriptors is not None and self.message is not None:
            try:
                return _fields_of(protobufschema.of_file(self.descriptors).of(self.message))
            except WireError as error:
                raise DefinitionError(str(error)) from None
        if not ask or self.registry is None:
            return None
        registry = SchemaRegistry(self.registry, "serialized")
        schema = registry.latest(registry.subject(self.sink_topic, self.message or ""))
        if schema is None:
            return None
        types = _parsed(schema)
        return _fields_of((types.at((0,)) if self.message is None else types.of(self.message)).descriptor)


class Protobuf(Codec):
    """One message for each row.

    codec = ProtobufConfig(descriptors="plant.desc", message="plant.Reading").build()
    """

    def __init__(self, config: ProtobufConfig) -> None:
        self._config = config
        self._registry = None if config.registry is None else SchemaRegistry(config.registry, "serialized")
        self._messages = None if config.descriptors is None else protobufschema.of_file(config.descriptors)
        self._configured: _MessageType | None = None
        if self._messages is not None and config.message is not None:
            try:
                self._configured = _MessageType(self._messages, self._messages.of(config.message))
            except WireError as error:
                raise DefinitionError(str(error)) from None
        self._results: tuple[Frame, _MessageType] | None = None
        if self._registry is not None and config.sink_topic is not None:
            self._registry.subject(config.sink_topic, config.message or "")

    def decode(self, records: Records, wanted: frozenset[str] | None, first: int = 0) -> Decoded:
        """A row for each message. Fields that the schema does not have are skipped."""
        if self._registry is None:
            given = self._configured
            assert given is not None
            return decode_plain(records, first, wanted, lambda row, payload: given.read(self._checked(payload)))
        headers = schema_headers(records)
        away: list[ConnectorError] = []

        def read(row: int, payload: Any) -> dict[str, Any]:
            try:
                return self._framed(self._checked(payload), headers[row])
            except ConnectorError as error:
                away.append(error)
                raise

        decoded = decode_plain(records, first, wanted, read)
        if away:
            raise away[0]
        return without_schemas(decoded, records, first)

    def encode(self, batch: Batch) -> Encoded:
        """A message for each row. A value for which the message has no field is an error of its row."""
        if not batch.size:
            return Encoded([], {})
        frame, kind = self._results = self._results or self._of_results()
        encoded = encode_plain(batch, lambda row: frame.prefix + kind.written(row), AS_OBJECTS)
        return Encoded(encoded.values, encoded.failed, frame.headers(batch.size))

    def _checked(self, payload: object) -> bytes:
        raw = payload_bytes(payload, "protobuf")
        if len(raw) > self._config.max_bytes:
            raise WireError(
                f"the payload has {len(raw)} bytes, more than {self._config.max_bytes}; "
                "raise max_bytes of the codec if such messages are expected"
            )
        return raw

    def _framed(self, raw: bytes, header: bytes | None) -> dict[str, Any]:
        of, rest, whole = framed(raw, header)
        indexes, at = _indexes(rest)
        kind = self._configured or self._type(of, indexes)
        if kind is self._configured and indexes != kind.place:
            raise WireError(
                f"the payload is the message at {list(indexes)[:10]} of its schema, and {kind.descriptor.full_name} "
                f"stands at {list(kind.place)}; leave descriptors out to read messages of several types"
            )
        return kind.read(rest[at:] if whole is None else whole)

    def _type(self, of: SchemaRef, indexes: tuple[int, ...]) -> _MessageType:
        assert self._registry is not None
        return self._registry.parsed(of, _parsed).at(indexes)

    def _of_results(self) -> tuple[Frame, _MessageType]:
        if self._registry is None:
            assert self._configured is not None
            return Frame(b""), self._configured
        try:
            if self._messages is not None and self._configured is not None:
                subject = self._registry.subject(self._config.sink_topic, self._config.message or "")
                file = self._messages.files[self._configured.descriptor.file.name]
                return self._frame(self._registered(subject, file.name, self._messages), self._configured)
            subject = self._registry.subject(self._config.sink_topic, self._config.message or "")
            latest = self._registry.latest(subject) if subject else None
            if latest is None:
                raise ConnectorError(
                    f'the schema registry {self._registry.config.url} has no subject "{subject}": register a schema '
                    "for the results, or give the codec one (descriptors: FILE, message: NAME)"
                )
            types = _parsed(latest)
            kind = types.at((0,)) if self._config.message is None else types.of(self._config.message)
            return self._frame(latest, kind)
        except WireError as error:
            raise ConnectorError(f"results cannot be written: {error}") from None

    def _registered(self, subject: str, name: str, messages: MessageTypes) -> Registered:
        """The schema of a file as the registry has it, after those that it imports."""
        assert self._registry is not None
        file = messages.files[name]
        others = [
            (name, name, self._registered(name, name, messages)) for name in file.dependency if name in messages.files
        ]
        return self._registry.written(subject, "PROTOBUF", protobufschema.as_text(file), others)

    def _frame(self, registered: Registered, kind: _MessageType) -> tuple[Frame, _MessageType]:
        assert self._registry is not None
        prefix, header = self._registry.frame(registered)
        indexes = _as_bytes(kind.place)
        if header is None:
            return Frame(prefix + indexes), kind
        name, value = header
        return Frame(b"", (name, (value or b"") + indexes)), kind


class _MessageType:
    """One type of messages."""

    def __init__(self, messages: MessageTypes, descriptor: Any) -> None:
        self.descriptor = descriptor
        self._make = messages.class_of(descriptor)
        self.place = tuple(protobufschema.indexes_of(messages, descriptor))
        self._form = MessageForm(descriptor)

    def read(self, raw: bytes) -> dict[str, Any]:
        try:
            return self._form.read(self._make.FromString(raw))
        except DecodeError as error:
            raise WireError(f"the payload is not a message of the type {self.descriptor.full_name}: {error}") from None

    def written(self, row: dict[str, Any]) -> bytes:
        message = self._make()
        try:
            self._form.write(row, message)
        except WireError as error:
            # Without the name of a class of ours.
            raise WireError(str(error)) from None
        try:
            written: bytes = message.SerializeToString()
        except EncodeError as error:
            raise WireError(f"the values make no message of the type {self.descriptor.full_name}: {error}") from None
        return written


class _MessageTypes:
    """The types of messages of one schema of the registry."""

    def __init__(self, messages: MessageTypes) -> None:
        self._messages = messages
        self._at: dict[Sequence[int], _MessageType] = {}

    def at(self, indexes: tuple[int, ...]) -> _MessageType:
        message_type = self._at.get(indexes)
        if message_type is None:
            message_type = self._at[indexes] = _MessageType(self._messages, self._messages.at(indexes))
        return message_type

    def of(self, name: str) -> _MessageType:
        return _MessageType(self._messages, self._messages.of(name))


def _fields_of(descriptor: Any) -> PayloadFields:
    needed = (field.name for field in descriptor.fields if field.is_required)
    return PayloadFields(frozenset(field.name for field in descriptor.fields), frozenset(needed))


def _parsed(registered: Registered) -> _MessageTypes:
    if registered.kind != "PROTOBUF":
        raise WireError(f"the schema is {registered.kind}, not PROTOBUF: it is not a payload for the codec protobuf")
    others = {name: reference.text for name, reference in registered.references.items()}
    return _MessageTypes(protobufschema.of_texts(registered.text, others))


def _indexes(raw: bytes) -> tuple[tuple[int, ...], int]:
    """The place of the message in its schema, and the number of bytes that name it."""
    try:
        count, at = varint(raw, 0)
        count = _unzigzag(count)
        if not 0 <= count <= _DEEPEST:
            raise WireError(f"the framing names a message {count} levels deep")
        path = []
        for _ in range(count):
            index, at = varint(raw, at)
            path.append(_unzigzag(index))
    except IndexError:
        raise WireError("the framing ends before it has named a message") from None
    # A single zero stands for the first message type.
    return tuple(path) or (0,), at


def _as_bytes(indexes: Sequence[int]) -> bytes:
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(_varint(number << 1) for number in (len(indexes), *indexes))


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def _unzigzag(number: int) -> int:
    return (number >> 1) ^ -(number & 1)
