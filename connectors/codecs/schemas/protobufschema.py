"""Descriptors of protobuf messages: from a file of `protoc`, or from a schema registry."""

from __future__ import annotations

import base64
import importlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from pipelines.errors import DefinitionError, WireError, nearest

WELL_KNOWN: Final = (
    "any",
    "api",
    "duration",
    "empty",
    "field_mask",
    "source_context",
    "struct",
    "timestamp",
    "type",
    "wrappers",
)
"""The files of protobuf itself, which every schema may import and no registry delivers."""

_HOW: Final = "protoc --include_imports --descriptor_set_out=FILE your.proto"


class MessageTypes:
    """The message types of one schema: `files` in any order, the last of which is the schema itself."""

    def __init__(self, files: Sequence[FileDescriptorProto]) -> None:
        """Raises `WireError` for files that make no schema."""
        self.files = {file.name: file for file in files}
        self.main = files[-1]
        self._pool = descriptor_pool.DescriptorPool()
        added: set[str] = set()
        for file in files:
            self._add(file, added, ())

    def of(self, name: str) -> Any:
        """The descriptor of the message with this full name. Raises `WireError` naming the nearest."""
        try:
            return self._pool.FindMessageTypeByName(name)
        except KeyError:
            known = sorted(_names(self.files.values()))
            raise WireError(
                f'the schema has no message "{name[:100]}"{nearest(name, known)}; it has {_listed(known)}'
            ) from None

    def at(self, indexes: Sequence[int]) -> Any:
        """The descriptor of the message at this place of the schema: `[1, 0]` is the first inside the second one."""
        inside: Any = self.main.message_type
        names = [self.main.package] if self.main.package else []
        for index in indexes:
            if not 0 <= index < len(inside):
                raise WireError(f"the schema has no message at {list(indexes)[:10]}")
            names.append(inside[index].name)
            inside = inside[index].nested_type
        return self.of(".".join(names))

    @staticmethod
    def class_of(descriptor: Any) -> Any:
        """The class of messages of this type."""
        return message_factory.GetMessageClass(descriptor)

    def _add(self, file: FileDescriptorProto, added: set[str], importing: tuple[str, ...]) -> None:
        if file.name in added:
            return
        if file.name in importing:
            raise WireError(f"the schema {file.name} imports itself")
        for name in file.dependency:
            if name in self.files:
                self._add(self.files[name], added, (*importing, file.name))
            elif name not in added:
                self._pool.AddSerializedFile(_well_known(name, file.name))
                added.add(name)
        try:
            self._pool.AddSerializedFile(file.SerializeToString())
        except (TypeError, ValueError) as error:
            raise WireError(f"the schema {file.name} cannot be used: {' '.join(str(error).split())[:300]}") from None
        added.add(file.name)


def of_file(path: Path) -> MessageTypes:
    """The message types of a descriptor set. Raises `DefinitionError` for another file, and if imports are missing."""
    try:
        files = FileDescriptorSet.FromString(path.read_bytes()).file
    except OSError as error:
        raise DefinitionError(f"the descriptors {path} cannot be read: {error.strerror}; make them by {_HOW}") from None
    except DecodeError:
        files = None
    if not files:
        raise DefinitionError(f"{path} holds no descriptors of protobuf; make them by {_HOW}")
    try:
        return MessageTypes(list(files))
    except WireError as error:
        raise DefinitionError(f"{path}: {error}; make it by {_HOW}") from None


def of_texts(text: str, references: Mapping[str, str]) -> MessageTypes:
    """The message types of a schema and of those that it imports, as a registry gives them. Raises `WireError`."""
    return MessageTypes([_proto(name, other) for name, other in references.items()] + [_proto("schema.proto", text)])


def as_text(file: FileDescriptorProto) -> str:
    """A schema as Confluent's clients register it: its descriptor in base64."""
    return base64.b64encode(file.SerializeToString()).decode()


def indexes_of(messages: MessageTypes, descriptor: Any) -> list[int]:
    """The place of a message in its file: the opposite of `MessageTypes.at`."""
    names: list[str] = []
    while descriptor is not None:
        names.insert(0, descriptor.name)
        file, descriptor = descriptor.file, descriptor.containing_type
    inside: Any = messages.files[file.name].message_type
    indexes: list[int] = []
    for name in names:
        place = next(at for at, message in enumerate(inside) if message.name == name)
        indexes.append(place)
        inside = inside[place].nested_type
    return indexes


def _proto(name: str, text: str) -> FileDescriptorProto:
    try:
        proto = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (ValueError, DecodeError):
        raise WireError(
            "the registry gives schemas of protobuf as text only, which takes protoc to read; give the codec their "
            f"descriptors and the name of the message (descriptors: FILE, message: NAME), made by {_HOW}"
        ) from None
    # A registry gives the schema itself the name "default", and knows others by the names that import them.
    proto.name = name if name != "schema.proto" else proto.name or name
    return proto


def _well_known(name: str, of: str) -> bytes:
    part = name.removeprefix("google/protobuf/").removesuffix(".proto")
    if part == "descriptor" or part in WELL_KNOWN:
        serialized: bytes = importlib.import_module(f"google.protobuf.{part}_pb2").DESCRIPTOR.serialized_pb
        return serialized
    raise WireError(f"the schema {of} imports {name[:100]}, which is not there")


def _names(files: Iterable[FileDescriptorProto]) -> Iterable[str]:
    def inside(messages: Any, before: str) -> Iterable[str]:
        for message in messages:
            if not message.options.map_entry:
                yield before + message.name
                yield from inside(message.nested_type, f"{before}{message.name}.")

    for file in files:
        yield from inside(file.message_type, f"{file.package}." if file.package else "")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
