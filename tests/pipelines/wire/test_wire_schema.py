"""The generated protobuf module and its stub are those of protos/data.proto."""

from __future__ import annotations

import ast
from pathlib import Path

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

from pipelines.values import NDArrayType, ValueType
from protos import data_pb2 as pb

PROTOS = Path(pb.__file__).parent


def test_the_generated_module_is_current(tmp_path: Path) -> None:
    target = tmp_path / "data.pb"
    status = protoc.main(["protoc", f"-I{PROTOS}", f"--descriptor_set_out={target}", str(PROTOS / "data.proto")])
    assert status == 0
    (compiled,) = FileDescriptorSet.FromString(target.read_bytes()).file
    generated = FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(generated)
    for file in (compiled, generated):
        file.name = "data.proto"
        for message in file.message_type:
            without_json_names(message)
    assert generated == compiled, "run the compiler again: make protos"


def without_json_names(message: DescriptorProto) -> None:
    for field in message.field:
        field.ClearField("json_name")
    for nested in message.nested_type:
        without_json_names(nested)


def test_the_stub_lists_the_same_messages_and_fields() -> None:
    tree = ast.parse((PROTOS / "data_pb2.pyi").read_text(encoding="utf-8"))
    stubs = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    assert set(stubs) == set(pb.DESCRIPTOR.message_types_by_name)
    for name, descriptor in pb.DESCRIPTOR.message_types_by_name.items():
        assert fields_of(stubs[name]) == set(field_names(descriptor)), name


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
