"""Why a camera or video gives no pictures, and the errors of libav in words."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from typing import Final

from connectors.camera.address import Address, Kind
from pipelines.errors import ConnectorError

PAGE: Final = (
    "the URL gives a web page, not a video: is it the login page, or the page that shows the video? The manual of the "
    "camera names the URL of the stream"
)


class VideoError(ConnectorError):
    """The stream gives no pictures. The text says why, and holds neither URL nor login."""

    may_be_explained = False
    """Whether libav could make nothing of an answer, so that another look at it may say why."""


class SilentError(VideoError):
    """The stream is open, and nothing came within the time that was given."""


class CutError(VideoError):
    """The connection ended in the middle of a recording. The rest can be read on another connection."""


class RefusedError(VideoError):
    """The camera refuses the login. Many cameras lock out a client that tries again soon."""


def reason(error: Exception, address: Address, seconds: float, awaited: str) -> VideoError:
    """The error of libav in words. The error itself may not be shown: its text holds the URL with the login."""
    import av

    failure = _in_words(error, address, seconds, awaited)
    vague = isinstance(error, (av.error.ExitError, av.error.InvalidDataError))
    vague = (vague or getattr(error, "errno", None) == errno.EIO) and address.kind is Kind.HTTP
    failure.may_be_explained = vague or (isinstance(failure, RefusedError) and address.has_login)
    return failure


def _in_words(error: Exception, address: Address, seconds: float, awaited: str) -> VideoError:
    import av

    if isinstance(error, av.error.ExitError) and address.is_sent_here:
        return SilentError(f"nothing was sent to {address.shown} within {seconds:g} s: does the sender name this port?")
    if isinstance(error, av.error.ProtocolNotFoundError):
        return VideoError(
            f"the libav of this PyAV reads no {address.scheme}://; pass the stream on: "
            f"ffmpeg -i {address.shown} -c copy -f mpegts udp://127.0.0.1:5000, and write udp://127.0.0.1:5000 here"
        )
    if isinstance(error, av.error.ExitError):
        return SilentError(f"no {awaited} within {seconds:g} s")
    if isinstance(error, av.error.HTTPUnauthorizedError):
        another = (
            "another user name and password" if address.has_login else "a user name and a password: write both down"
        )
        return RefusedError(f"the camera wants {another} (401)")
    if isinstance(error, av.error.HTTPForbiddenError):
        return RefusedError("the camera forbids it to this user (403)")
    if getattr(error, "errno", None) == errno.EIO and address.host is not None and not _is_known(address.host):
        return VideoError(f'there is no host "{address.host}", or no name server that knows it')
    if getattr(error, "errno", None) == errno.EIO and address.kind is Kind.HTTP:
        # An answer that ends where libav expects more, and redirects without end.
        return VideoError(
            "the connection ended before a picture came: is this the URL of a video stream?"
            if awaited == "answer"
            else "the camera ended the stream"
        )
    for kind, words in (
        (av.error.HTTPNotFoundError, "the camera has no such stream (404): is the path of the URL right?"),
        (ConnectionRefusedError, "nothing listens at this address: connection refused"),
        (PermissionError, "this process may not read it"),
        (FileNotFoundError, "it is not there"),
        (
            av.error.InvalidDataError,
            f"its data are not a {'picture' if address.kind is Kind.FOLDER else 'video'} that libav can read"
            f"{_CAUSES.get(address.kind, '')}",
        ),
        (
            av.error.ArgumentError,
            "libav refuses it: an unknown option, or a redirect to a protocol that is not allowed",
        ),
    ):
        if isinstance(error, kind):
            return VideoError(words)
    text = getattr(error, "strerror", None) or (str(error) if not isinstance(error, OSError) else type(error).__name__)
    return VideoError(address.scrubbed(str(text)))


_CAUSES: Final[Mapping[Kind, str]] = {
    Kind.RTSP: ": are the port and the path of the URL right?",
    Kind.HTTP: ": is the path of the URL right? A camera that sends JPEG pictures may need `format: mjpeg`",
    Kind.FILE: ": is the file cut short?",
}
"""Advice for data that libav cannot read as video."""


def _is_known(host: str) -> bool:
    """Whether the host's name has an address; libav does not tell that from other troubles."""
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return False
    return True
