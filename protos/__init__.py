"""ProtoData: the protobuf messages of the wire form. `data.proto` says what each field is.

`protos.sparkplug_pb2`, of `sparkplug.proto`, are the messages of Sparkplug B; `protos.open_inference_pb2`, of
`open_inference.proto`, those of the Open Inference Protocol over gRPC.
"""

from protos.data_pb2 import DataMap, DataScheme

__all__ = ["DataMap", "DataScheme"]
