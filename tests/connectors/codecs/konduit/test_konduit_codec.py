"""`konduit`: bodies of Konduit Serving's HTTP server, by content type."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest

from connectors.codec import Codec, Decoded
from connectors.codecs.konduit.codec import KonduitConfig
from connectors.codecs.registry import codec_of
from connectors.contract import CodecContract
from connectors.message import Message, records_of
from pipelines import Batch, Data, Image

PIXEL = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x00\x00\x00\x00:~\x9bU\x00\x00\x00\n"
    b"IDATx\x9cc\x60\x00\x00\x00\x02\x00\x01H\xaf\xa4q\x00\x00\x00\x00IEND\xaeB\x60\x82"
)


class TestKonduit(CodecContract):
    bad = (b"", b"[1]", b"{", "text")
    cycles = "Python's json makes a closure that refers to itself for each indented text"

    @pytest.fixture
    def codec(self) -> Codec:
        return KonduitConfig().build()

    @pytest.fixture
    def record(self) -> Data:
        return Data({"x": np.arange(3.0), "n": 7, "who": "é"})


def decoded(*records: tuple[bytes, dict[str, str]]) -> Decoded:
    messages = [Message(body, headers=tuple((k, v.encode()) for k, v in headers.items())) for body, headers in records]
    return codec_of("konduit").decode(records_of(messages, "http"), None)


def form(parts: Sequence[tuple[str, bytes]], boundary: str = "xyz") -> tuple[bytes, dict[str, str]]:
    body = b"".join(
        b"--%s\r\n%s\r\n\r\n%s\r\n" % (boundary.encode(), head.encode(), content) for head, content in parts
    )
    return body + b"--%s--\r\n" % boundary.encode(), {"content-type": f"multipart/form-data; boundary={boundary}"}


def test_json_and_protodata_are_told_apart_by_their_content_type_and_answered_as_accept_says() -> None:
    data = Data({"x": np.array([0, 1, 2], np.float32)})
    read = decoded(
        (data.to_json(byte_order="little").encode(), {"content-type": "application/json; charset=utf-8"}),
        (data.to_bytes(), {"content-type": "application/octet-stream", "accept": "application/octet-stream"}),
        (data.to_bytes(), {"content-type": "application/octet-stream", "accept": "*/*"}),
    )
    assert not read.failed
    assert read.batch.to_list() == [data] * 3
    answers = codec_of("konduit").encode(read.batch)
    assert answers.headers is not None
    kinds = [dict(headers)["content-type"] for headers in answers.headers]
    assert kinds == [b"application/json", b"application/octet-stream", b"application/json"]
    assert answers.values[1] == data.to_bytes()
    assert Data.from_json(answers.values[2].decode(), byte_order="little") == data
    assert b"\n" in answers.values[0], "it is for people to read, as in Konduit Serving"


def test_a_form_has_texts_lists_images_and_files() -> None:
    noise = bytes(range(256)) * 3 + b"\r\n--xy\r\n\n\r"
    (row,) = decoded(
        form(
            [
                ('Content-Disposition: form-data; name="text"', b'7 "quoted" \\ '),
                ('Content-Disposition: form-data; name="list"', b"[1, 2, 3]"),
                ('Content-Disposition: form-data; name="im"; filename="a.png"\r\nContent-Type: image/png', PIXEL),
                ('Content-Disposition: form-data; name="f"; filename="a"\r\nContent-Type: application/x-any', noise),
            ]
        )
    ).batch.to_list()
    assert (row["text"], row["list"], row["f"]) == ('7 "quoted" \\ ', [1, 2, 3], noise)
    assert isinstance(row["im"], Image)
    assert (row["im"].width, row["im"].height) == (1, 1)


@pytest.mark.parametrize(
    ("body", "headers", "text"),
    [
        (b"{}", {"content-type": "text/csv"}, 'INVALID_CONTENT_TYPE_HEADER: "text/csv"'),
        (b"{}", {"content-type": "application/json", "accept": "text/html"}, "INVALID_ACCEPT_HEADER"),
        (b"--xyz\r\n", {"content-type": "multipart/form-data; boundary=xyz"}, "its parts do not end"),
        (b"--xyz\r\n", {"content-type": "multipart/form-data"}, "its parts do not end"),
        (*form([("Content-Disposition: form-data", b"1")]), "has no name"),
        (*form([('Content-Disposition: form-data; name="a"', b"1")] * 2), 'the name "a" twice'),
        (*form([('Content-Disposition: form-data; name="a"', b'[1], "b": [2]')]), "not one JSON list"),
        (*form([('Content-Disposition: form-data; name="a"', b"\xff")]), "send it as a file"),
    ],
)
def test_bodies_of_another_kind_and_forms_that_are_none_fail_alone(
    body: bytes, headers: dict[str, str], text: str
) -> None:
    good: tuple[bytes, dict[str, str]] = (json.dumps({"a": 1}).encode(), {})
    read = decoded(good, (body, headers), good)
    assert text in str(read.failed[1])
    assert read.batch.to_list() == [Data({"a": 1})] * 2


def test_results_of_no_record_are_json() -> None:
    assert json.loads(codec_of("konduit").encode(Batch.of([Data({"a": 1})])).values[0]) == {"a": 1}
