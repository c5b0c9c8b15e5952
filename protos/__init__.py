"""ProtoData: the protobuf messages of the wire form. `data.proto` says what each field is.

`protos.sparkplug_pb2`, of `sparkplug.proto`, are the messages of Sparkplug B.
"""

from protos.data_pb2 import DataMap, DataScheme

__all__ = ["DataMap", "DataScheme"]
