"""The generated protobuf modules and their stubs are those of protos/*.proto."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

from pipelines.values import NDArrayType, ValueType
from protos import data_pb2 as pb
from protos import sparkplug_pb2

PROTOS = Path(pb.__file__).parent


MODULES = pytest.mark.parametrize(("name", "module"), [("data", pb), ("sparkplug", sparkplug_pb2)])


@MODULES
def test_the_generated_module_is_current(name: str, module: ModuleType, tmp_path: Path) -> None:
    target = tmp_path / "compiled.pb"
    status = protoc.main(["protoc", f"-I{PROTOS}", f"--descriptor_set_out={target}", str(PROTOS / f"{name}.proto")])
    assert status == 0
    (compiled,) = FileDescriptorSet.FromString(target.read_bytes()).file
    generated = FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(generated)
    for file in (compiled, generated):
        file.name = f"{name}.proto"
        for message in file.message_type:
            without_json_names(message)
    assert generated == compiled, "run the compiler again: make protos"


def without_json_names(message: DescriptorProto) -> None:
    for field in message.field:
        field.ClearField("json_name")
    for nested in message.nested_type:
        without_json_names(nested)


@MODULES
def test_the_stub_lists_the_same_messages_and_fields(name: str, module: ModuleType) -> None:
    tree = ast.parse((PROTOS / f"{name}_pb2.pyi").read_text(encoding="utf-8"))
    stubs = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    messages = module.DESCRIPTOR.message_types_by_name
    assert set(stubs) == {*messages, *module.DESCRIPTOR.enum_types_by_name}
    for message, descriptor in messages.items():
        assert fields_of(stubs[message]) == set(field_names(descriptor)), message


def fields_of(stub: ast.ClassDef) -> set[str]:
    for node in stub.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__slots__":
            return set(ast.literal_eval(node.value))
    raise AssertionError(f"{stub.name} has no __slots__")


def field_names(descriptor: Descriptor) -> list[str]:
    return [field.name for field in descriptor.fields]


def test_our_type_numbers_are_the_schemas() -> None:
    values = {member.name: int(member) for member in ValueType if member is not ValueType.NONE}
    assert values == dict(pb.DataScheme.ValueType.items())
    assert {member.name: int(member) for member in NDArrayType} == dict(pb.NDArray.ValueType.items())
