"""The fields of the sinks that show results in a service file."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo, field_validator, model_validator

from connectors.config import LocalPath, SinkConfig
from connectors.view.board import Board
from connectors.view.result import Taking
from connectors.view.sink import ViewSink
from connectors.view.videosink import VideoSink
from connectors.view.videowriter import Encoding
from pipelines.plugins.requirements import Package, Requires

_URL: Final = re.compile(r"(rtmps?|rtsps?|srt|udp)://", re.IGNORECASE)


def _host_and_port(listen: str) -> str:
    found = re.fullmatch(r"(?:\[[0-9A-Fa-f:.]+\]|[^:\[\]\s]+):(\d{1,5})", listen)
    if found is None or int(found[1]) > 65535:
        raise ValueError(f'host:port is needed, like 127.0.0.1:8090 or 0.0.0.0:8090, not "{listen}"')
    return listen


class ShownConfig(SinkConfig):
    """What sinks that show pictures take out of a result."""

    carries: ClassVar[frozenset[Literal["bytes", "objects"]]] = frozenset({"objects"})
    requires: ClassVar[Requires] = Package("cv2", "image")

    codec: str | dict[str, Any] = "objects"
    """Results are taken as they are: there is nothing to choose."""
    image: str = "image"
    """The key of the picture. A pipeline that drops it gets it back by `keep: [image]` of the service."""
    boxes: tuple[str, ...] | None = None
    """The keys of bounding boxes and lists of them that are shown; by default all that the result has."""
    ids: str = "ids"
    """The key of the ids of tracks, a list beside the boxes."""

    @property
    def taking(self) -> Taking:
        """These fields."""
        return Taking(self.image, self.boxes, self.ids)


class ViewSinkConfig(ShownConfig):
    """A page in a browser with the newest picture of each camera, its boxes and values; nothing is encoded while nobody
    watches."""

    type: Literal["view"] = "view"
    """Which connector this is."""
    listen: Annotated[str, AfterValidator(_host_and_port)] = "127.0.0.1:8090"
    """`host:port` of the page; 127.0.0.1 is for this machine only, 0.0.0.0 for all, and then needs a `token`. Port 0 is any free one."""  # noqa: E501
    token: Annotated[SecretStr, Field(min_length=8)] | None = Field(default=None, validate_default=True)
    """Who wants to see pictures has to know it: `http://HOST:PORT/#token=TOKEN` for the page, `?token=TOKEN` or `Authorization: Bearer TOKEN` for pictures."""  # noqa: E501
    width: Annotated[int, Field(ge=16, le=7680)] = 640
    """Pixels across of the pictures at most."""
    fps: Annotated[float, Field(gt=0, le=120)] = 15.0
    """Pictures of a camera that are encoded in a second at most."""
    quality: Annotated[int, Field(ge=1, le=100)] = 75
    """Quality of the JPEG files."""

    @field_validator("token")
    @classmethod
    def _needed_off_this_machine(cls, token: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        listen = info.data.get("listen")
        if token is None and listen is not None and not _is_local(listen):
            raise ValueError(
                f"a token is needed where others can see the page (listen: {listen}); give 8 characters or more, or "
                "listen on 127.0.0.1"
            )
        return token

    @property
    def place(self) -> str:
        """Where the page is."""
        return f"http://{self.listen}"

    def build(self) -> ViewSink:
        """The sink, not yet open."""
        token = None if self.token is None else self.token.get_secret_value()
        return ViewSink(self.listen, Board(self.width, self.quality, self.fps), self.taking, token, self.label)


class VideoSinkConfig(ShownConfig):
    """Annotated video of each camera, in files or sent to a server."""

    requires: ClassVar[Requires] = (Package("cv2", "image"), Package("av", "camera"))

    type: Literal["video"] = "video"
    """Which connector this is."""
    path: LocalPath | None = None
    """The file, by its ending: `videos/{camera}.mp4`, `.mkv`. `{camera}` is the camera's name. A file that is there is left alone, and a number added to the name of the new one."""  # noqa: E501
    url: SecretStr | None = None
    """A server that takes video, instead of a file: `rtmp://host/live/{camera}`, rtmps, rtsp, srt or udp. While it is away pictures are passed over."""  # noqa: E501
    draw: bool = True
    """Whether boxes are drawn into the pictures."""
    width: Annotated[int, Field(ge=16, le=7680)] = 1280
    """Pixels across of the video at most."""
    fps: Annotated[float, Field(gt=0, le=240)] = 15.0
    """Pictures a second that the encoder reckons with. Each picture keeps its own time."""
    encoder: str = "libx264"
    """The encoder, as FFmpeg calls it."""
    options: dict[str, str] = Field(default={"preset": "veryfast", "tune": "zerolatency", "crf": "25"})
    """Options of the encoder, as FFmpeg has them."""
    queue: Annotated[int, Field(ge=1, le=1000)] = 16
    """Pictures of a camera that wait for the encoder at most; then the sink is full."""

    @model_validator(mode="after")
    def _one_place(self) -> VideoSinkConfig:
        if (self.path is None) == (self.url is None):
            raise ValueError("path or url is needed, and only one of them")
        if self.url is not None and not _URL.match(self.url.get_secret_value()):
            raise ValueError("url: rtmp, rtmps, rtsp, rtsps, srt or udp is needed, as rtmp://host/live/{camera}")
        return self

    @property
    def place(self) -> str:
        """The file, or which kind of server."""
        return str(self.path) if self.url is None else self.url.get_secret_value().partition("://")[0]

    def build(self) -> VideoSink:
        """The sink, not yet open."""
        encoding = Encoding(self.width, self.fps, self.encoder, dict(self.options), self.draw, self.queue)
        place = self.path if self.url is None else self.url.get_secret_value()
        assert place is not None
        return VideoSink(place, self.taking, encoding, self.label)


def _is_local(listen: str) -> bool:
    host = listen.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
