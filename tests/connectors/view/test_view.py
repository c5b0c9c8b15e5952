"""The sink `view` over plain HTTP: answers, encoded pictures, and access."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
from waiting import until

import connectors.view
from connectors.contract.measures import check_measures
from connectors.view.board import MOST_CAMERAS
from connectors.view.config import ViewSinkConfig
from connectors.view.pages import SCRIPTS
from connectors.view.result import Taking
from pipelines import BoundingBox, Data, Image
from pipelines.data.record import RecordContext
from pipelines.errors import ConnectorError, StreamerError
from streamer.definition.loading import loads
from tests.connectors.view.conftest import Client, deliver, result


def piece(client: Client) -> tuple[dict[str, Any], bytes]:
    """The next piece of the stream: its facts and its picture."""
    facts = json.loads(client.take(int.from_bytes(client.take(4))))
    return facts, client.take(int.from_bytes(client.take(4)))


def picture(client: Client) -> tuple[dict[str, Any], bytes]:
    """The next piece that has a picture."""
    while True:
        facts, jpeg = piece(client)
        if jpeg:
            return facts, jpeg


def shade(jpeg: bytes) -> int:
    return int(np.median(Image(jpeg).get_as("numpy")))


def test_one_stream_brings_all_cameras_with_their_boxes_and_values(viewing: Any, ask: Any) -> None:
    sink = viewing()
    client = ask(sink, "/stream")
    assert piece(client) == ({"title": "yard", "cameras": [], "states": {}, "places": []}, b"")
    assert deliver(sink, result("gate", 50, count=3, text="x" * 500), result("dock", 200, boxes=2)) == {}
    found = {facts["camera"]: (facts, jpeg) for facts, jpeg in (picture(client), picture(client))}
    facts, jpeg = found["gate"]
    assert abs(shade(jpeg) - 50) < 5
    assert (facts["width"], facts["height"], facts["timestamp"]) == (64, 48, 1_700_000_000_000)
    assert facts["boxes"] == [{"box": [0.0, 0.2, 0.2, 0.4], "text": "1 face 90%", "label": "face", "id": 1}]
    assert facts["values"] == {"count": 3, "text": "x" * 80}
    assert len(found["dock"][0]["boxes"]) == 2


@pytest.mark.parametrize(("upright", "size"), [(False, (30, 20)), (True, (20, 30))])
def test_boxes_fit_a_photo_that_browsers_would_turn(
    viewing: Any, ask: Any, upright: bool, size: tuple[int, int]
) -> None:
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    photo = io.BytesIO()
    PIL.Image.new("RGB", (30, 20)).save(photo, "JPEG", exif=exif)
    sink = viewing()
    client = ask(sink, "/stream")
    deliver(sink, Data({"image": Image(photo.getvalue(), upright=upright)}, record=result().record))
    facts, jpeg = picture(client)
    with PIL.Image.open(io.BytesIO(jpeg)) as shown:
        assert (facts["width"], facts["height"]) == shown.size == size
        assert 0x0112 not in shown.getexif()


def test_nothing_is_encoded_while_nobody_watches(viewing: Any, ask: Any) -> None:
    sink = viewing(fps=100)
    for number in range(50):
        deliver(sink, result("gate", number))
    assert (sink.board.shown, sink.board.encoded) == (50, 0)
    client = ask(sink, "/stream")
    _, jpeg = picture(client)
    assert abs(shade(jpeg) - 49) < 5
    client.close()
    until(lambda: sink.board.watchers == 0)
    before = sink.board.encoded
    for number in range(50):
        deliver(sink, result("gate", number))
    assert sink.board.encoded == before


def test_a_slow_watcher_gets_the_newest_and_holds_up_nobody(viewing: Any, ask: Any) -> None:
    sink = viewing(fps=120)
    client = ask(sink, "/stream")
    picture_before = deliver(sink, result("gate", 1))
    assert picture_before == {}
    picture(client)
    began = time.monotonic()
    for number in range(500):
        deliver(sink, result("gate", number % 200, wide=640))
    deliver(sink, result("gate", 250))
    assert time.monotonic() - began < 60
    last = b""
    while not last or abs(shade(last) - 250) > 3:
        _, last = picture(client)
    assert sink.board.encoded < 400


def test_pictures_of_one_camera_move_in_any_browser_and_player(viewing: Any, ask: Any) -> None:
    sink = viewing(fps=100)
    deliver(sink, result("gate/left", 10))
    client = ask(sink, "/gate%2Fleft.mjpeg?boxes=0")
    assert "content-type: multipart/x-mixed-replace; boundary=picture" in client.head
    shades = []
    for number in (10, 90, 200):
        if number != 10:
            deliver(sink, result("gate/left", number))
        head = client.until(b"\r\n\r\n").decode()
        length = int(head.rpartition("Content-Length: ")[2])
        shades.append(shade(client.take(length)))
    assert [abs(a - b) < 5 for a, b in zip(shades, (10, 90, 200), strict=True)] == [True] * 3


def test_a_picture_of_one_camera_has_its_boxes_drawn_unless_told_otherwise(viewing: Any, ask: Any) -> None:
    sink = viewing()
    deliver(sink, result("gate", 0, wide=320))
    plain, drawn = (Image(ask(sink, path).rest()).get_as("numpy") for path in ("/gate.jpg?boxes=0", "/gate.jpg"))
    assert plain.max() < 10
    assert drawn.max() > 150
    assert (ask(sink, "/gate.jpg").status, ask(sink, "/nowhere.jpg").status, ask(sink, "/gate.png").status) == (
        200,
        404,
        404,
    )


def test_pictures_are_no_wider_than_wanted(viewing: Any, ask: Any) -> None:
    sink = viewing(width=100)
    deliver(sink, result("gate", 0, wide=640))
    image = Image(ask(sink, "/gate.jpg").rest())
    assert (image.width, image.height) == (100, 74)


@pytest.mark.parametrize(("asked", "wide"), [("300", 320), ("321", 480), ("9000", 500), ("-1", 500), ("x", 500)])
def test_a_browser_that_shows_small_pictures_gets_small_ones(viewing: Any, ask: Any, asked: str, wide: int) -> None:
    sink = viewing(width=500)
    deliver(sink, result("gate", 0, wide=640))
    assert Image(ask(sink, f"/gate.jpg?width={asked}").rest()).width == wide
    _, jpeg = picture(ask(sink, f"/stream?width={asked}"))
    assert Image(jpeg).width == wide


def test_a_browser_that_shows_one_camera_gets_pictures_of_that_one(viewing: Any, ask: Any) -> None:
    sink = viewing(fps=100)
    deliver(sink, result("gate", 10), result("dock", 20))
    client = ask(sink, "/stream?camera=dock")
    for number in range(3):
        facts, _ = picture(client)
        assert facts["camera"] == "dock"
        deliver(sink, result("gate", 30 + number), result("dock", 40 + number))


def test_a_jpeg_that_needs_no_change_is_shown_as_it_came(viewing: Any, ask: Any) -> None:
    sink = viewing()
    jpeg = Image(np.full((48, 64, 3), 7, np.uint8)).get_as("jpeg")
    deliver(sink, Data({"image": Image(jpeg)}, record=RecordContext("s", "gate")))
    assert ask(sink, "/gate.jpg?boxes=0").rest() == jpeg


def test_a_picture_that_cannot_be_decoded_takes_no_other_along(viewing: Any, ask: Any) -> None:
    sink = viewing()
    client = ask(sink, "/stream")
    broken = Data({"image": Image(b"\x89PNG no picture")}, record=RecordContext("s", "broken"))
    assert deliver(sink, broken, result("gate", 30)) == {}
    facts, _ = picture(client)
    assert facts["camera"] == "gate"
    until(lambda: sink.board.failed == 1)


def test_a_result_without_a_picture_is_refused_alone(viewing: Any) -> None:
    sink = viewing()
    (index,) = refused = deliver(sink, result("gate"), Data({"label": "cat"}), first=10)
    assert index == 1
    assert not refused[1].retriable
    assert "keep: [image]" in str(refused[1])
    assert np.concatenate(sink.confirmed()).tolist() == [10]
    assert sink.barrier(0.0) == {}
    assert sink.behind() == 0.0


def test_boxes_in_pixels_of_some_rows_or_of_nonsense_are_placed_or_left_out() -> None:
    image = Image(np.zeros((100, 200, 3), np.uint8))
    boxes = [
        BoundingBox.corners(50, 150, 20, 40, "a"),
        BoundingBox.corners(float("nan"), 1, 0, 1),
        BoundingBox.corners(0.75, 0.25, 0.5, 0.1),
    ]
    data = Data({"image": image, "boxes": boxes, "one": BoundingBox.corners(0, 1, 0, 1), "ids": [1, 2]})
    shown = Taking().shown(data, "view")
    placed = [(round(one.left, 3), round(one.top, 3), round(one.width, 3), round(one.height, 3)) for one in shown.boxes]
    assert placed == [(0.25, 0.2, 0.5, 0.2), (0.25, 0.1, 0.5, 0.4), (0.0, 0.0, 1.0, 1.0)]
    assert [one.number for one in shown.boxes] == [None] * 3
    assert shown.camera == "view"
    assert len(Taking(boxes=("one",)).shown(data, "view").boxes) == 1


def test_a_flood_of_camera_names_takes_bounded_room(viewing: Any) -> None:
    sink = viewing()
    for number in range(MOST_CAMERAS + 40):
        deliver(sink, result(f"camera {number}", wide=16))
    names = sink.board.cameras()
    assert len(names) == MOST_CAMERAS
    assert "camera 0" not in names


def test_off_this_machine_a_token_is_needed(viewing: Any, ask: Any) -> None:
    with pytest.raises(StreamerError, match="<text>:4: sink: a token is needed where others can see the page"):
        loads(SERVICE % "listen: '0.0.0.0:8090'")
    with pytest.raises(ValueError, match="at least 8"):
        ViewSinkConfig(token="short")
    sink = viewing(token="a-long-töken")
    deliver(sink, result("gate", 30))
    assert ask(sink, "/", host="yard.example").status == 200
    assert ask(sink, "/stream", host="yard.example").status == 401
    assert ask(sink, "/gate.jpg?token=wrong").status == 401
    assert ask(sink, "/gate.jpg?token=a-long-t%C3%B6ken").status == 200
    assert ask(sink, "/stream", "Authorization: Bearer wrong").status == 401
    good = viewing(token="a-long-token")
    assert ask(good, "/stream", "Authorization: Bearer a-long-token").status == 200


def test_a_page_of_somebody_else_cannot_read_this_one(viewing: Any, ask: Any) -> None:
    sink = viewing()
    deliver(sink, result("gate", 30))
    assert ask(sink, "/gate.jpg", host="evil.example").status == 403
    client = ask(sink, "/gate.jpg")
    assert "cross-origin-resource-policy: same-origin" in client.head
    assert "access-control-allow-origin" not in client.head
    assert "content-security-policy: default-src 'self'" in ask(sink, "/").head


def test_the_page_and_what_it_needs_come_from_here(viewing: Any, ask: Any) -> None:
    sink = viewing()
    page = ask(sink, "/").rest().decode()
    assert "<html lang=" in page
    assert page.count('"view.js"') == page.count('"view.css"') == 1
    folder = Path(connectors.view.__file__).parent / "page"
    assert {"index.html", "view.css", *SCRIPTS} == {file.name for file in folder.iterdir()}
    for name in ("view.css", *SCRIPTS):
        text = ask(sink, f"/{name}").rest().decode()
        assert "://" not in text + page
        assert "innerHTML" not in text
    assert ask(sink, "/../config.py").status == 404


def test_metrics_of_a_page_can_be_read_at_any_time(viewing: Any) -> None:
    check_measures(ViewSinkConfig().build())
    sink = viewing()
    deliver(sink, result())
    check_measures(sink)
    sink.close()
    sink.close()
    check_measures(sink)
    with pytest.raises(ConnectorError, match="is not open"):
        deliver(sink, result())


def test_an_address_that_is_taken_is_said_when_it_opens(viewing: Any) -> None:
    sink = viewing()
    other = ViewSinkConfig(listen=f"127.0.0.1:{sink.address[1]}").build()
    with pytest.raises(ConnectorError, match="choose another address or port"):
        other.open()


SERVICE = """
source: {type: memory, topic: in, codec: image}
pipeline: []
sink: {type: view, %s}
"""


def test_a_service_shows_what_it_reads_and_refuses_it_as_the_place_of_dead_letters() -> None:
    service = loads(SERVICE % "width: 320")
    assert service.sinks[0].codec == "objects"
    with pytest.raises(StreamerError, match="a dead letter is bytes, and a sink of type view takes none"):
        loads(SERVICE % "width: 320" + "dead_letter: {type: view}")
    with pytest.raises(StreamerError, match="the codec json is for bytes, and a connector of type view has objects"):
        loads(SERVICE % "codec: json")
