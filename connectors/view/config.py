"""The fields of the sinks that show results in a service file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import Field, PositiveInt, SecretStr, ValidationInfo, field_validator, model_validator

from connectors.camera.options import ENCODER_OPTIONS, ENCODERS
from connectors.config import LocalPath, SinkConfig, SourceConfig
from connectors.http.hosts import is_loopback
from connectors.units import Duration, Size, host_and_port, listening
from connectors.view.encoder import unwritable
from connectors.view.result import Taking
from pipelines.errors import DefinitionError
from pipelines.plugins.requirements import Package, Requires

_FILE_NAME: Final = re.compile(r"(?!\.)(?:[\w .-]|\{[A-Za-z_][\w.-]*\})+")
_URL: Final = re.compile(r"(rtmps?|rtsps?|srt|udp)://", re.IGNORECASE)


class ShownConfig(SinkConfig):
    """The fields of sinks that show pictures: which values of a result are shown."""

    carries: ClassVar[frozenset[Literal["bytes", "objects"]]] = frozenset({"objects"})
    requires: ClassVar[Requires] = Package("cv2", "image")

    codec: str | dict[str, Any] = "objects"
    """Results are passed on as objects: no other codec is possible."""
    image: str = "image"
    """The key of the picture. A pipeline that drops it gets it back by `keep: [image]` of the service."""
    boxes: tuple[str, ...] | None = None
    """The keys of bounding boxes and lists of them that are shown; by default all that the result has."""
    ids: str = "ids"
    """The key of the ids that a TRACK step gives to the boxes: a list with one id for each box."""

    @property
    def taking(self) -> Taking:
        """The choice of shown values that these fields make."""
        return Taking(self.image, self.boxes, self.ids)


class ViewSinkConfig(ShownConfig):
    """A page in a browser with the newest picture of each camera, its boxes, zones, counts and values, and the last
    events; pictures are encoded only while the page is open, or at events."""

    built_by: ClassVar[str] = "connectors.view.sink:ViewSink"

    type: Literal["view"] = "view"
    """The type of connector."""
    listen: Annotated[str, listening(8090)] = "127.0.0.1:8090"
    """The address of the page, `host:port`. With host 127.0.0.1 only this machine can reach it; any other, such as 0.0.0.0, needs a `token`. Port 0 is any free one."""  # noqa: E501
    token: Annotated[SecretStr, Field(min_length=8)] | None = Field(default=None, validate_default=True)
    """The secret that is needed to see pictures: `http://HOST:PORT/#token=TOKEN` for the page, `?token=TOKEN` or `Authorization: Bearer TOKEN` for pictures."""  # noqa: E501
    width: Annotated[int, Field(ge=16, le=7680)] = 1280
    """The largest width of the pictures, in pixels. The page asks for smaller ones where it shows them smaller."""
    fps: Annotated[float, Field(gt=0, le=120)] = 15.0
    """The most pictures of a camera that are encoded in a second."""
    quality: Annotated[int, Field(ge=1, le=100)] = 75
    """Quality of the JPEG files."""
    counts: str = "counts"
    """The key of what a ZONES step counts."""
    events: str = "events"
    """The key of the events of a ZONES step, or of others: a list of texts, or of values with `event`, a text."""
    clips: bool | None = None
    """Whether clips that sinks of type `clip` write can be played on the page. They hold the pictures as the camera sent them: so by default only if no step of the pipeline is a BLUR."""  # noqa: E501
    most_events: Annotated[int, Field(ge=0, le=1000)] = 100
    """How many of the last events the page lists. Each has a picture, whether or not a page is open; 0: none are kept."""  # noqa: E501

    @field_validator("token")
    @classmethod
    def _needed_off_this_machine(cls, token: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        listen = info.data.get("listen")
        if token is None and listen is not None and not is_loopback(host_and_port(listen)[0]):
            raise ValueError(
                f"a token is needed where others can see the page (listen: {listen}); give 8 characters or more, or "
                "listen on 127.0.0.1"
            )
        return token

    @property
    def taking(self) -> Taking:
        """The choice of shown values that these fields make."""
        return Taking(self.image, self.boxes, self.ids, self.counts, self.events)

    @property
    def exclusive(self) -> Mapping[str, str]:
        """The address of the page, unless any is free."""
        return super().exclusive if self.listen.endswith(":0") else {**super().exclusive, "listen": self.listen}

    @property
    def place(self) -> str:
        """The URL of the page."""
        return f"http://{self.listen}"


class VideoSinkConfig(ShownConfig):
    """Annotated video of each camera, in files or sent to a server."""

    built_by: ClassVar[str] = "connectors.view.videosink:VideoSink"
    requires: ClassVar[Requires] = (Package("cv2", "image"), Package("av", "camera"))

    type: Literal["video"] = "video"
    """The type of connector."""
    path: LocalPath | None = None
    """The file, by its ending: `videos/{camera}.mp4`, `.mkv`. `{camera}` is the camera's name. Existing files are kept: a number is added to the name of the new one."""  # noqa: E501
    url: SecretStr | None = None
    """A server that takes video, instead of a file: `rtmp://host/live/{camera}`, rtmps, rtsp, srt or udp. While it is away pictures are dropped."""  # noqa: E501
    draw: bool = True
    """Whether boxes are drawn into the pictures."""
    width: Annotated[int, Field(ge=16, le=7680)] = 1280
    """The largest width of the video, in pixels."""
    fps: Annotated[float, Field(gt=0, le=240)] = 15.0
    """The rate that the encoder assumes, in pictures a second. Each picture keeps its own time."""
    encoder: Annotated[str, ENCODERS] = "libx264"
    """FFmpeg's name of the encoder."""
    options: Annotated[dict[str, str], ENCODER_OPTIONS] = Field(
        default={"preset": "veryfast", "tune": "zerolatency", "crf": "25"}
    )
    """FFmpeg's options of the encoder."""
    queue: Annotated[int, Field(ge=1, le=1000)] = 16
    """The most pictures of a camera that wait for the encoder; beyond that the sink is full."""

    @model_validator(mode="after")
    def _one_place(self) -> VideoSinkConfig:
        if (self.path is None) == (self.url is None):
            raise ValueError("path or url is needed, and only one of them")
        if self.url is not None and not _URL.match(self.url.get_secret_value()):
            raise ValueError("url: rtmp, rtmps, rtsp, rtsps, srt or udp is needed, as rtmp://host/live/{camera}")
        for name in re.findall(r"{(.*?)}", str(self.target)):
            if name != "camera":
                raise ValueError(f'there is no "{{{name}}}" in the place of a video, only {{camera}}')
        if self.path is not None and not self.path.suffix:
            raise ValueError("path: its ending says the format of the video: write videos/{camera}.mp4")
        return self

    @property
    def notes(self) -> tuple[str, ...]:
        """An encoder that is not there, or does not fit the file."""
        problem = None if self.path is None else unwritable(self.encoder, self.path.suffix)
        return () if problem is None else (problem,)

    @property
    def target(self) -> Path | str:
        """The file, or the URL of the server with its secrets; `{camera}` in it becomes the camera's name."""
        if self.url is not None:
            return self.url.get_secret_value()
        assert self.path is not None
        return self.path

    @property
    def exclusive(self) -> Mapping[str, str]:
        """Its file, if it writes one."""
        return super().exclusive if self.path is None else {**super().exclusive, "path": str(self.path)}

    @property
    def place(self) -> str:
        """The file, or the kind of server."""
        return str(self.path) if self.url is None else self.url.get_secret_value().partition("://")[0]


class ClipSinkConfig(SinkConfig):
    """A file for each event with the video of its camera before and after it, not encoded again."""

    built_by: ClassVar[str] = "connectors.view.clipsink:ClipSink"
    carries: ClassVar[frozenset[Literal["bytes", "objects"]]] = frozenset({"objects"})
    requires: ClassVar[Requires] = Package("av", "camera")

    type: Literal["clip"] = "clip"
    """The type of connector."""
    codec: str | dict[str, Any] = "objects"
    """Results are passed on as objects: no other codec is possible."""
    directory: LocalPath
    """The folder of the clips; it is created if necessary."""
    file_name: Annotated[str, Field(min_length=1, max_length=200)] = "{camera}-{time}"
    """The name of a file without its ending. `{camera}`, `{time}` (of the picture, in UTC) and `{KEY}` of a value of the result are replaced; a value never names a folder. Existing files are kept: a number is added to the name of the new one."""  # noqa: E501
    format: Literal["mp4", "mkv"] = "mp4"
    """The format of the files. mkv takes nearly every codec."""
    before: Annotated[Duration, Field(ge=0, le=600)] = 5.0
    """How long before the picture of the event a clip begins, or up to a key frame earlier."""
    after: Annotated[Duration, Field(ge=0, le=3600)] = 5.0
    """How long a clip goes on after the last event."""
    longest: Annotated[Duration, Field(gt=0, le=86400)] = 600.0
    """The longest clip of consecutive events; after that another clip begins."""
    memory: Size = 32 * 2**20
    """The most memory for the packets of each camera: those of the last `before` and ten seconds more, as results come later than pictures; of a file, those before the first picture without its result."""  # noqa: E501
    max_files: PositiveInt = 1000
    """How many files are kept; the oldest ones whose names match `file_name` are deleted."""
    max_size: Size = 10 * 2**30
    """The largest size of all files whose names match `file_name`; the oldest ones are deleted."""

    @field_validator("file_name")
    @classmethod
    def _one_name(cls, name: str) -> str:
        if not _FILE_NAME.fullmatch(name):
            raise ValueError(
                "letters, digits, - _ . and fields like {camera}, {time} or {label} make a name; the folder is "
                "`directory`"
            )
        return name

    @model_validator(mode="after")
    def _longest_is_longer(self) -> ClipSinkConfig:
        if self.longest < self.before + self.after:
            raise ValueError("longest is less than before and after together")
        return self

    def in_service(self, service: str, sources: Sequence[SourceConfig] = ()) -> Self:
        """The same sink. Raises `DefinitionError` if no source has packets of cameras."""
        if sources and not any(source.keeps_footage for source in sources):
            raise DefinitionError(
                f'sink "{self.label}": a clip is of a camera, and no source of this service is; write type: video, '
                "or take a source of type camera"
            )
        return self

    @property
    def notes(self) -> tuple[str, ...]:
        """A note on a missing `when`."""
        return () if self.when is not None else ("every result makes a clip, or makes it longer: say which by `when`",)

    @property
    def exclusive(self) -> Mapping[str, str]:
        """Its folder, where each process would delete clips of the others."""
        return {**super().exclusive, "directory": str(self.directory)}

    @property
    def place(self) -> str:
        """The folder."""
        return str(self.directory)
