"""`data_of_form`: the values of a multipart form, as Konduit Serving reads them."""

from __future__ import annotations

from email import policy
from email.message import EmailMessage
from email.parser import BytesParser
from typing import Any, Literal

from pipelines.data.data import Data
from pipelines.errors import WireError
from pipelines.values import Image
from pipelines.wire.json import loads
from pipelines.wire.limits import Limits

_MOST_PARTS = 1000


def data_of_form(content_type: str, body: bytes, byte_order: Literal["big", "little"], limits: Limits) -> Data:
    """The values of a `multipart/form-data` body by the names of its parts.

    A part that is no file is a text, or, if it begins with `[`, JSON. A file is an image if its content type says so,
    else bytes. Raises `WireError` for a body that is no form, and for names that exist twice.
    """
    if len(body) > limits.max_bytes:
        raise WireError(f"the form has {len(body)} bytes, and the limit is {limits.max_bytes} (max_bytes)")
    head = content_type.replace("\r", " ").replace("\n", " ").encode("latin-1", "replace")
    message = BytesParser(EmailMessage, policy=policy.HTTP).parsebytes(b"Content-Type: %s\r\n\r\n%s" % (head, body))
    if not message.is_multipart() or message.defects:
        raise WireError("the body is not the multipart form that its content-type announces: its parts do not end")
    values: dict[str, Any] = {}
    for count, part in enumerate(message.iter_parts()):
        name = part.get_param("name", header="content-disposition")
        if not isinstance(name, str) or not name:
            raise WireError(f"part {count} of the form has no name")
        if name in values or count >= _MOST_PARTS:
            raise WireError(
                f'the form has the name "{name}" twice' if name in values else "the form has too many parts"
            )
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        if part.get_filename() is None:
            values[name] = _attribute(name, content, byte_order, limits)
        elif "image" in part.get_content_type():
            values[name] = Image(content)
        else:
            values[name] = content
    return Data(values)


def _attribute(name: str, content: bytes, byte_order: Literal["big", "little"], limits: Limits) -> Any:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise WireError(f'"{name}" of the form is no UTF-8; send it as a file') from None
    if not text.startswith("["):
        return text
    read = loads(f'{{"list": {text}}}', byte_order, limits)
    if len(read) != 1:
        raise WireError(f'"{name}" of the form begins with [ and is not one JSON list')
    return read["list"]
