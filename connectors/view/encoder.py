"""Whether an encoder is there, and fits the format of a video file."""

from __future__ import annotations

import io
from fractions import Fraction
from typing import Any

from pipelines.errors import nearest


def added(container: Any, encoder: str, rate: Fraction, options: dict[str, str], ending: str) -> Any:
    """A new stream of `encoder` in an output of libav. Raises `ValueError` in words; `ending` is that of the file."""
    import av

    try:
        return container.add_stream(encoder, rate=rate, options=options)
    except av.codec.codec.UnknownCodecError:
        known = sorted(name for name in container.supported_codecs if name in av.codecs_available)
        problem = f'the encoder "{encoder}" is not there{nearest(encoder, known)}'
    except (ValueError, TypeError):
        problem = f'{ending} files take no video of the encoder "{encoder}": write another ending, as .mp4, or encoder'
    raise ValueError(problem)


def unwritable(encoder: str, ending: str) -> str | None:
    """Why there can be no file with this ending (`.mp4`) by this encoder; `None` if there can be, or PyAV is not
    installed."""
    try:
        import av
    except ImportError:
        return None
    nothing: Any = io.BytesIO()
    nothing.name = f"video{ending}"
    try:
        container = av.open(nothing, "w")
    except ValueError:
        return f'libav knows no video file that ends with "{ending}": write .mp4 or .mkv'
    try:
        added(container, encoder, Fraction(15), {}, ending)
    except ValueError as error:
        return str(error)
    return None
