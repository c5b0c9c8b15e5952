"""Files as sources and sinks: ProtoData messages, JSON lines, plain lines, folders of images."""

from connectors.file.config import FileSinkConfig, FileSourceConfig
from connectors.file.framing import FRAMINGS, Framing
from connectors.file.imagesink import ImageSink
from connectors.file.sink import FileSink
from connectors.file.source import FileSource

__all__ = ["FRAMINGS", "FileSink", "FileSinkConfig", "FileSource", "FileSourceConfig", "Framing", "ImageSink"]
