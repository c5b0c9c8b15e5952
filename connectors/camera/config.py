"""The fields of cameras in a service file."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PositiveInt,
    PrivateAttr,
    SecretStr,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from connectors.camera.address import Address, Kind, address
from connectors.camera.camera import CameraSettings
from connectors.camera.files.picturefolder import pictures
from connectors.camera.files.playlist import is_playlist
from connectors.camera.frame import COLUMNS
from connectors.camera.options import INPUT_FORMATS, INPUT_OPTIONS, check_never_set
from connectors.camera.video import Opening
from connectors.config import SourceConfig
from connectors.units import Duration
from pipelines.described import FrozenSettings
from pipelines.plugins.requirements import Package, Requires

_SIZE = re.compile(r"([1-9][0-9]{0,4})x([1-9][0-9]{0,4})")


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def _as_size(value: object) -> object:
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"a size is written like 640x360, not {value!r}")
    return int(match[1]), int(match[2])


def _checked_name(name: str) -> str:
    if _NAME.fullmatch(name):
        return name
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    instead = re.sub(r"[^A-Za-z0-9._-]+", "-", plain).strip("._-")
    raise ValueError(
        "a camera's name is its topic and a part of file names: letters from a to z, digits, and . _ - behind the first"
        + (f'; write "{instead}"' if instead else "")
    )


def _as_text(value: object) -> object:
    """An option of libav as text: YAML reads `1` and `true` as something else."""
    if isinstance(value, bool):
        return str(int(value))
    return str(value) if isinstance(value, (int, float)) else value


FrameSize = Annotated[
    tuple[int, int],
    BeforeValidator(_as_size),
    WithJsonSchema({"type": "string", "pattern": f"^{_SIZE.pattern}$", "examples": ["640x360"]}),
]
"""Width and height in pixels, written like `640x360`."""


CameraName = Annotated[
    str, AfterValidator(_checked_name), WithJsonSchema({"type": "string", "pattern": f"^{_NAME.pattern}$"})
]
"""The name of a camera."""


class CameraFields(FrozenSettings):
    """One camera. A text instead of the fields is its `url`."""

    url: SecretStr
    """The camera's URL: rtsp://HOST/PATH, http://HOST/PATH (MJPEG, HLS, or a recording), udp://0.0.0.0:PORT, rtp://, rtmp://HOST/PATH, srt://HOST:PORT, /dev/video0, a video file, a folder of pictures, or lavfi:testsrc2 for a test picture. It is shown without user name, password and query."""  # noqa: E501
    username: str | None = None
    """The user name, if it is not in the URL."""
    password: SecretStr | None = None
    """The password. It may contain any character, without the escapes that a URL needs. It needs `username`."""
    format: Annotated[str | None, INPUT_FORMATS] = None
    """The name of the format in libav, where libav cannot detect it or takes too long: mpjpeg begins a second earlier if a camera gives a picture a second; mjpeg finds the pictures of HTTP cameras whose headers are wrong; avfoundation and dshow are the cameras of other systems."""  # noqa: E501
    transport: Literal["tcp", "udp"] = "tcp"
    """How RTSP sends pictures. UDP loses packets, and so parts of pictures."""
    policy: Literal["latest", "fifo", "block"] | None = None
    """What happens to pictures that come faster than the pipeline runs them. latest: a newer one takes the place of one that waits. fifo: they wait in a queue of max_frames, the oldest are dropped. block: a file or recording is read more slowly. By default latest for what is live or read in real time, block for files and recordings."""  # noqa: E501
    max_frames: PositiveInt = 8
    """How many pictures wait at most, with fifo and block."""
    max_age: Duration | None = None
    """With fifo: a picture that has waited longer is dropped."""
    fps: Annotated[float, Field(gt=0, le=1000)] | None = None
    """The most pictures a second that are run, chosen by their times; by default all. The URL of a single picture is asked for so many a second."""  # noqa: E501
    keyframes_only: bool = False
    """Decode key frames only: a seventh of the work, a picture every second or so."""
    size: FrameSize | None = None
    """Scale pictures to this size as they are decoded; by default they keep their own."""
    hardware: str | None = None
    """The kind of device that decodes, such as cuda, vaapi or videotoolbox. By default, and if the machine has no such device, the CPU decodes."""  # noqa: E501
    threads: PositiveInt = 1
    """Threads that decode this camera's pictures. More than one help with files, and with cameras that send each picture in several slices."""  # noqa: E501
    loop: bool = False
    """Begin a file, folder or recording by URL again at its end."""
    real_time: bool = False
    """Read a file, folder or recording by URL as fast as it was recorded (a folder: 25 pictures a second), as if it were a camera."""  # noqa: E501
    timeout: Annotated[Duration, Field(gt=0)] = 5.0
    """How long connecting to the camera may take before it counts as failed and is tried again."""
    stall: Annotated[Duration, Field(gt=0)] = 5.0
    """After how long without a picture, or with less than a tenth of the usual number, a live camera is reconnected. RTSP notices lost data after up to twice this time."""  # noqa: E501
    frozen: Duration = 60.0
    """After how long with pictures that are equal in every pixel a live camera is reconnected; 0: never."""
    clock_tolerance: Duration = 5.0
    """How much the camera's clock may differ from this machine's. Beyond that, and with 0, pictures have the time of their receipt."""  # noqa: E501
    max_pixels: PositiveInt = 40_000_000
    """The most pixels of a picture, width times height; larger pictures are refused before they are decoded."""
    options: Annotated[
        dict[str, Annotated[SecretStr, BeforeValidator(_as_text, json_schema_input_type=str | int | float | bool)]],
        INPUT_OPTIONS,
    ] = Field(default_factory=dict)
    """Options of libav that have no field of their own: rtsp_flags, user_agent, headers, framerate of a device, ... They override those that the other fields set, but for protocol_whitelist and graph, which nothing overrides. libav ignores unknown names without a word, so check the spelling. Their values are not shown in logs."""  # noqa: E501

    _address: Address = PrivateAttr()

    @field_validator("options")
    @classmethod
    def _none_that_is_never_set(cls, options: dict[str, SecretStr]) -> dict[str, SecretStr]:
        check_never_set(options)
        return options

    @field_validator("format")
    @classmethod
    def _no_filters(cls, format: str | None) -> str | None:
        if format == "lavfi":
            raise ValueError("lavfi is said by the url alone: lavfi:testsrc2")
        return format

    @model_validator(mode="after")
    def _of_this_kind(self, info: ValidationInfo) -> Self:
        base = (info.context or {}).get("base")
        password = None if self.password is None else self.password.get_secret_value()
        location = address(self.url.get_secret_value(), None if base is None else Path(base), self.username, password)
        certainly_live = location.live and not location.may_be_recorded
        if self.policy == "block" and certainly_live:
            raise ValueError("policy block is for files: a live camera ends a session that is not read; write fifo")
        if certainly_live and (self.loop or self.real_time):
            raise ValueError("loop and real_time are for files, folders, and recordings by http")
        if self.max_age is not None and self.policy != "fifo":
            raise ValueError("max_age is for policy fifo: add `policy: fifo`, or leave max_age out")
        if password is not None and self.username is None:
            raise ValueError("password needs username")
        if self.username is not None and location.kind not in (Kind.RTSP, Kind.HTTP):
            raise ValueError("username and password are for rtsp and http")
        self._address = location
        return self

    @property
    def address(self) -> Address:
        """The parsed URL."""
        return self._address

    @property
    def settings(self) -> CameraSettings:
        """These fields as `CameraSettings` for `Camera`."""
        options = {name: value.get_secret_value() for name, value in self.options.items()}
        if self.transport == "udp":
            options = {"rtsp_transport": "udp"} | options
        return CameraSettings(
            address=self.address,
            opening=Opening(
                wait=self.timeout,
                format=self.format,
                silence=self.stall,
                options=options,
                keyframes_only=self.keyframes_only,
                hardware=self.hardware,
                threads=self.threads,
                max_pixels=self.max_pixels,
                every=None if self.fps is None else 1.0 / self.fps,
            ),
            policy=self.policy,
            max_frames=self.max_frames,
            max_age=self.max_age,
            fps=self.fps,
            size=self.size,
            loop=self.loop,
            real_time=self.real_time,
            stall=self.stall,
            frozen=self.frozen,
            clock_tolerance=self.clock_tolerance,
        )


def _only_a_url(fields: Any) -> Any:
    if isinstance(fields, (str, SecretStr)):
        return {"url": fields}
    if not isinstance(fields, (Mapping, CameraFields)):
        raise ValueError(f"a camera is a URL, or a mapping with `url`{_device(fields)}")
    if isinstance(fields, Mapping) and _device(fields.get("url")):
        raise ValueError(f"`url` is text{_device(fields['url'])}")
    return fields


def _device(number: object) -> str:
    """What to write instead of the number of a camera of this machine; empty for anything else."""
    return f"; camera {number} of this machine is /dev/video{number}" if type(number) is int else ""


Camera = Annotated[CameraFields, BeforeValidator(_only_a_url, json_schema_input_type=str | CameraFields)]
"""A camera: its fields, or only its URL."""


class EachCamera(CameraFields):
    """Fields that several cameras have."""

    url: SecretStr = SecretStr("")

    @model_validator(mode="after")
    def _of_this_kind(self, info: ValidationInfo) -> Self:
        if self.url.get_secret_value():
            raise ValueError("`url` is of one camera: write it there")
        return self


class CameraSourceConfig(SourceConfig):
    """Pictures of cameras, video files and folders of pictures. Topic and key of a record are its camera's name."""

    built_by: ClassVar[str] = "connectors.camera.source:CameraSource"
    browsed_by: ClassVar[str | None] = "connectors.camera.browser:CameraBrowser"
    requires: ClassVar[Requires] = Package("av", "camera")
    carries: ClassVar[frozenset[Literal["bytes", "objects"]]] = frozenset({"objects"})
    record_columns: ClassVar[tuple[str, ...]] = COLUMNS
    keeps_footage: ClassVar[bool] = True

    type: Literal["camera"] = "camera"
    """The type of connector."""
    codec: str | dict[str, Any] = "frame"
    """How pictures become values: frame gives the value `image`, which is decoded already."""
    cameras: Annotated[dict[CameraName, Camera], Field(min_length=1)]
    """The cameras by name, each a URL or its fields: `{gate: rtsp://10.0.0.7/live, dock: {url: ..., fps: 5}}`."""
    each: EachCamera | None = None
    """Fields of every camera that does not set them itself: `{fps: 5, username: ai, password: ${CAMERAS}}`."""

    @model_validator(mode="before")
    @classmethod
    def _each(cls, fields: Any) -> Any:
        if not isinstance(fields, Mapping):
            return fields
        cameras, each = fields.get("cameras"), fields.get("each")
        if not isinstance(cameras, Mapping) or not isinstance(each, Mapping) or not _is_right(each):
            # Errors in `each` are reported once, for `each` itself.
            return fields
        return {**fields, "each": None, "cameras": {name: _with(each, camera) for name, camera in cameras.items()}}

    @field_validator("cameras", mode="before")
    @classmethod
    def _by_name(cls, cameras: Any) -> Any:
        if not isinstance(cameras, Mapping):
            # The value, which may hold a login, is not shown.
            raise ValueError("cameras have names: write {gate: rtsp://HOST/PATH, ...}")
        return cameras

    @property
    def topic_names(self) -> tuple[str, ...]:
        """The cameras' names."""
        return tuple(self.cameras)

    @property
    def place(self) -> str:
        """The cameras' names."""
        return ", ".join(self.cameras)

    @property
    def notes(self) -> tuple[str, ...]:
        """Missing files and folders, and folders without a picture."""
        notes = []
        for name, camera in self.cameras.items():
            path = camera.address.path
            if path is not None and not path.exists():
                notes.append(f"camera {name}: there is no file {path}")
            elif path is not None and camera.address.kind is Kind.FOLDER and not pictures(path):
                notes.append(f"camera {name}: there is no picture in {path}")
        return tuple(notes)

    @property
    def file_keys(self) -> Mapping[str, Path]:
        """The files, folders and devices among its cameras, besides those of the codec."""
        paths = {f"cameras.{name}.url": camera.address.place for name, camera in self.cameras.items()}
        return {**super().file_keys, **{key: path for key, path in paths.items() if path is not None}}

    @property
    def option_keys(self) -> Mapping[str, str]:
        """As `ConnectorConfig.option_keys`, and playlists among the files, because they name further files to read."""
        lists = {
            f"cameras.{name}.url": "is a playlist, which may name any file of this machine"
            for name, camera in self.cameras.items()
            if camera.address.kind is Kind.FILE and (path := camera.address.path) is not None and is_playlist(path)
        }
        return {**super().option_keys, **lists}

    @property
    def settings(self) -> dict[str, CameraSettings]:
        """How each camera is read, by its name."""
        return {name: camera.settings for name, camera in self.cameras.items()}

    @property
    def perishable(self) -> bool:
        """As `Source.perishable`: whether all cameras have the policy `latest`."""
        every = self.settings.values()
        return all(settings.policy_of(live=settings.address.live) == "latest" for settings in every)


def _is_right(each: Mapping[str, Any]) -> bool:
    try:
        EachCamera.model_validate(each)
    except ValidationError:
        return False
    return True


def _with(each: Mapping[str, Any], camera: Any) -> Any:
    if isinstance(camera, str):
        return {**each, "url": camera}
    return {**each, **camera} if isinstance(camera, Mapping) else camera
