"""ProtoData: the protobuf messages of the wire form. `data.proto` says what each field is."""

from protos.data_pb2 import DataMap, DataScheme

__all__ = ["DataMap", "DataScheme"]
