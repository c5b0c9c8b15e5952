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
from protos import open_inference_pb2, sparkplug_pb2

PROTOS = Path(pb.__file__).parent


MODULES = pytest.mark.parametrize(
    ("name", "module"),
    [("data", pb), ("sparkplug", sparkplug_pb2), ("open_inference", open_inference_pb2)],
)


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


def test_messages_of_the_open_inference_protocol_are_those_of_tritons_client_in_the_same_process() -> None:
    service_pb2 = pytest.importorskip("tritonclient.grpc.service_pb2")
    theirs = {
        name: descriptor
        for module in (service_pb2, pytest.importorskip("tritonclient.grpc.model_config_pb2"))
        for name, descriptor in module.DESCRIPTOR.message_types_by_name.items()
    }
    ours = open_inference_pb2.DESCRIPTOR.message_types_by_name
    for name, descriptor in ours.items():
        assert_same_fields(descriptor, theirs[name])
    for name in ("ModelInferRequest", "ModelInferResponse", "InferTensorContents", "ModelMetadataResponse"):
        assert set(field_names(ours[name])) == set(field_names(theirs[name])), name
    assert (
        open_inference_pb2.DataType.items()
        == pytest.importorskip("tritonclient.grpc.model_config_pb2").DataType.items()
    )
    (ours_service,) = open_inference_pb2.DESCRIPTOR.services_by_name.values()
    (their_service,) = service_pb2.DESCRIPTOR.services_by_name.values()
    for method in ours_service.methods:
        same = their_service.methods_by_name[method.name]
        assert (method.client_streaming, method.server_streaming) == (same.client_streaming, same.server_streaming)
        assert (method.input_type.name, method.output_type.name) == (same.input_type.name, same.output_type.name)


def assert_same_fields(ours: Descriptor, theirs: Descriptor) -> None:
    for field in ours.fields:
        same = theirs.fields_by_name[field.name]
        assert (field.number, field.type, field.is_repeated) == (same.number, same.type, same.is_repeated), (
            field.full_name
        )
        if field.message_type is not None and same.message_type is not None:
            assert field.message_type.name == same.message_type.name
    for nested in ours.nested_types:
        assert_same_fields(nested, theirs.nested_types_by_name[nested.name])
