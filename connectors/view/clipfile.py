"""`ClipFile`: one file of packets, as a camera sent them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from connectors.camera.footage import Kept, annexb_parameters
from connectors.camera.video import pyav
from connectors.view.watchedfile import WatchedFile

_log = logging.getLogger(__name__)

UNFINISHED: Final = ".part"
"""The suffix of a file that is being written, or was when the process was killed."""
_FORMATS: Final = {"mp4": "mp4", "mkv": "matroska"}
_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    # If the process is killed, the file can be played up to its last key frame.
    "mp4": {"movflags": "frag_keyframe+empty_moov+default_base_moof", "flush_packets": "1"},
    "mkv": {"flush_packets": "1"},
}
_MILLISECONDS: Final = Fraction(1, 1000)
_JUMP: Final = 10.0
"""Seconds by which a stream's times may differ from those of receipt before its clock is taken to have been set."""


class ClipFile:
    """A file that begins with this packet, a key frame, and holds packets of one connection, codec and size.

    Times of the file begin at 0. Raises `OSError` if it cannot be written, also in `write` and `finish`, and
    `ValueError` for a codec that the format does not support.
    """

    def __init__(self, path: Path, kind: str, first: Kept) -> None:
        self.path = path
        self.byte_count = 0
        """Bytes of the packets that were written."""
        self.unfinished = path.with_name(path.name + UNFINISHED)
        self._template = first.template
        self._signature = _signature(first)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = WatchedFile(self.unfinished)
        try:
            self._container: Any = pyav().open(self._file, "w", format=_FORMATS[kind], options=_OPTIONS[kind])
            self._stream = self._added(first)
        except BaseException:
            self.abandon()
            raise
        # Times of the stream are better than times of receipt, if the stream has any.
        self._by_receipt = not first.template.timed
        self._before: Kept | None = None
        self._shift = 0
        self._last = -1

    def takes(self, kept: Kept) -> bool:
        """Whether this packet can follow in the same file."""
        if kept.template is not self._template:
            return False
        return not kept.is_keyframe or _signature(kept) == self._signature

    def write(self, kept: Kept) -> None:
        """Add a packet."""
        packet: Any = pyav().Packet(kept.data)
        base = _MILLISECONDS if self._by_receipt else kept.time_base
        stamp = self._stamp(kept, base)
        # Decoders need times that rise.
        dts = max(stamp, self._last + 1)
        late = 0 if self._by_receipt or kept.pts is None or kept.dts is None else kept.pts - kept.dts
        packet.dts, packet.pts, packet.time_base = dts, dts + max(late, 0), base
        packet.is_keyframe = kept.is_keyframe
        packet.stream = self._stream
        self._container.mux(packet)
        self._file.check()
        self._before, self._last = kept, dts
        self.byte_count += len(kept.data)

    def finish(self) -> None:
        """Complete the file on the disk and give it its final name."""
        try:
            self._container.close()
            self._file.finish()
        except BaseException:
            self.abandon()
            raise
        self.unfinished.replace(self.path)

    def abandon(self) -> None:
        """Stop writing. The data on the disk, which may be playable, keep the name of an unfinished file; an empty file
        is removed."""
        try:
            self._container.close()
        except Exception:  # noqa: BLE001 - it is broken already
            _log.debug("a clip that cannot be written cannot be closed either")
        self._file.close()
        with suppress(OSError):
            if not self.byte_count:
                self.unfinished.unlink()

    def _added(self, first: Kept) -> Any:
        template = first.template
        if annexb_parameters(first.data, template.codec):
            # The template may have outdated parameters; the packet has the right ones.
            stream = self._container.add_mux_stream(template.codec, width=first.size[0], height=first.size[1])
        else:
            stream = self._container.add_stream_from_template(template.stream, opaque=True)
        stream.time_base = first.time_base if template.timed else _MILLISECONDS
        return stream

    def _stamp(self, kept: Kept, base: Fraction) -> int:
        """The packet's decoding time, in units of `base` from the beginning of the file."""
        before = self._before
        received = 0 if before is None else round((kept.at - before.at) / base)
        if self._by_receipt:
            return self._last + received if before is not None else 0
        said = kept.dts if kept.dts is not None else kept.pts
        if said is None:
            return self._last + max(kept.duration, 1) if before is not None else 0
        stamp = said + self._shift
        if before is None or (before.dts is None and before.pts is None):
            # The first packet with a time follows packets without one.
            stamp = 0 if before is None else self._last + max(before.duration, 1)
        elif stamp <= self._last or abs(stamp - self._last - received) * base > _JUMP:
            stamp = self._last + max(received, 1)
        self._shift = stamp - said
        return stamp


def shows_something(path: Path) -> bool:
    """Whether a picture of this file, perhaps unfinished, can be decoded."""
    av = pyav()
    try:
        with av.open(str(path)) as container:
            return any(True for _ in container.decode(video=0))
    except (OSError, IndexError, av.FFmpegError):
        return False


def _signature(kept: Kept) -> object:
    """The parameters that have to be equal in all key frames of a file."""
    return annexb_parameters(kept.data, kept.template.codec) or kept.size
