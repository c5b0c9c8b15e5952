"""Services that take records from a message bus, run a pipeline on them and publish the results.

`streamer.load("service.yaml").run()` runs a service file; `streamer.Service(...)` is the same in Python;
`streamer.testing.run(service, records)` runs it without a broker. Connectors here are their configurations.
`streamer.Client("http://host:8000", "digits")` asks a service that runs elsewhere.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from streamer.hiding import hiding

if TYPE_CHECKING:
    from connectors.file import FileSinkConfig as FileSink
    from connectors.file import FileSourceConfig as FileSource
    from connectors.kafka.config import KafkaSinkConfig as KafkaSink
    from connectors.kafka.config import KafkaSourceConfig as KafkaSource
    from connectors.memory import MemorySinkConfig as MemorySink
    from connectors.memory import MemorySourceConfig as MemorySource
    from connectors.mqtt.config import MqttSourceConfig as MqttSource
    from connectors.mqtt.sinkconfig import MqttSinkConfig as MqttSink
    from streamer import testing
    from streamer.agent.summary import Summary
    from streamer.client.client import Client
    from streamer.client.errors import RequestError, RequestTimeout
    from streamer.definition.loading import load, load_all, loads
    from streamer.definition.nocode import NoCode
    from streamer.definition.service import Service

__all__ = [
    "Client",
    "FileSink",
    "FileSource",
    "KafkaSink",
    "KafkaSource",
    "MemorySink",
    "MemorySource",
    "MqttSink",
    "MqttSource",
    "NoCode",
    "RequestError",
    "RequestTimeout",
    "Service",
    "Summary",
    "load",
    "load_all",
    "loads",
    "testing",
]

_LATER = {
    "Client": "streamer.client.client:Client",
    "FileSink": "connectors.file:FileSinkConfig",
    "FileSource": "connectors.file:FileSourceConfig",
    "KafkaSink": "connectors.kafka.config:KafkaSinkConfig",
    "KafkaSource": "connectors.kafka.config:KafkaSourceConfig",
    "MemorySink": "connectors.memory:MemorySinkConfig",
    "MemorySource": "connectors.memory:MemorySourceConfig",
    "MqttSink": "connectors.mqtt.sinkconfig:MqttSinkConfig",
    "MqttSource": "connectors.mqtt.config:MqttSourceConfig",
    "NoCode": "streamer.definition.nocode:NoCode",
    "RequestError": "streamer.client.errors:RequestError",
    "RequestTimeout": "streamer.client.errors:RequestTimeout",
    "Service": "streamer.definition.service:Service",
    "Summary": "streamer.agent.summary:Summary",
    "load": "streamer.definition.loading:load",
    "load_all": "streamer.definition.loading:load_all",
    "loads": "streamer.definition.loading:loads",
    "testing": "streamer.testing:",
}


def __getattr__(name: str) -> Any:
    # Imported when first named: connectors have client libraries of their own, and the command line, which is in this
    # package too, shall print its help without loading any of it.
    if name not in _LATER:
        raise AttributeError(f"module 'streamer' has no attribute {name!r}")
    error = hiding()
    if error is not None:
        raise ImportError(error)
    module, _, attribute = _LATER[name].partition(":")
    imported = import_module(module)
    return getattr(imported, attribute) if attribute else imported


def __dir__() -> list[str]:
    return __all__
