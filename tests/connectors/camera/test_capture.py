"""FRAME_CAPTURE and VIDEO_CAPTURE: frames of a real video file; a camera only where there is one."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from outcomes import result_of

import pipelines
from connectors.camera.capture import FrameCaptureRunner
from pipelines import Data, FrameCapture, Image, OpenContext, StepError, VideoCapture
from pipelines.errors import StreamerError

FRAMES = 5


@pytest.fixture
def video(tmp_path: Path) -> Path:
    """A video of five gray frames, each 40 brighter than the one before."""
    path = tmp_path / "five.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 10, (32, 16))
    assert writer.isOpened()
    for number in range(FRAMES):
        writer.write(np.full((16, 32, 3), 40 * number, np.uint8))
    writer.release()
    return path


def captured(count: int, **fields: Any) -> list[Any]:
    with pipelines.Sequence([VideoCapture(**fields)]).open() as executor:
        return executor.run_many([Data({"n": number}) for number in range(count)])


def number_of(frame: Data) -> int:
    """Which of the video's frames it is."""
    return round(float(frame["image"].get_as("numpy").mean()) / 40)


def test_each_record_becomes_the_next_frame(video: Path) -> None:
    found = captured(FRAMES, file_path=video)
    assert [list(one) for one in found] == [["image"]] * FRAMES
    assert [number_of(one) for one in found] == [0, 1, 2, 3, 4]
    assert (found[0]["image"].width, found[0]["image"].height) == (32, 16)
    assert list(captured(1, file_path=video, output_key="frame")[0]) == ["frame"]


def test_frames_go_on_from_batch_to_batch(video: Path) -> None:
    with pipelines.Sequence([VideoCapture(file_path=f"file:{video}")]).open() as executor:
        assert [number_of(result_of(executor.run(Data()))) for _ in range(3)] == [0, 1, 2]


def test_a_video_begins_again_at_its_end(video: Path) -> None:
    # Konduit tries to read on, and fails.
    assert [number_of(one) for one in captured(7, file_path=video)] == [0, 1, 2, 3, 4, 0, 1]


def test_without_loop_records_after_the_end_fail_and_only_those(video: Path) -> None:
    found = captured(7, file_path=video, loop=False)
    assert [number_of(one) for one in found[:FRAMES]] == [0, 1, 2, 3, 4]
    assert all(isinstance(one, StepError) and "is at its end" in str(one) for one in found[FRAMES:])


def test_frames_are_skipped_after_each(video: Path) -> None:
    assert [number_of(one) for one in captured(5, file_path=video, skip_frames=1)] == [0, 2, 4, 0, 2]
    assert [number_of(one) for one in captured(3, file_path=video, skip_frames=30)] == [0, 0, 0]
    last = captured(3, file_path=video, skip_frames=2, loop=False)
    assert [number_of(one) for one in last[:2]] == [0, 3]
    assert isinstance(last[2], StepError)


def test_a_relative_path_starts_at_the_definition(video: Path) -> None:
    definition = video.with_name("pipeline.json")
    definition.write_text('{"steps": [{"@type": "VIDEO_CAPTURE", "filePath": "five.avi"}]}')
    with pipelines.load(definition).open() as executor:
        assert number_of(result_of(executor.run(Data()))) == 0


def test_what_cannot_be_opened_is_told(tmp_path: Path) -> None:
    (missing,) = captured(1, file_path=tmp_path / "none.avi")
    assert "none.avi cannot be opened; there is no such file" in str(missing)
    (tmp_path / "text.avi").write_text("no video")
    (strange,) = captured(1, file_path=tmp_path / "text.avi")
    assert "OpenCV knows no such format" in str(strange)
    with pytest.raises(StreamerError, match='"filePath"'):
        pipelines.Sequence([VideoCapture()]).open()


class FromFile(FrameCaptureRunner):
    """A camera that a video file stands for; no machine that runs tests has to have one."""

    def __init__(self, path: Path, **fields: Any) -> None:
        super().__init__(FrameCapture(**fields), OpenContext())
        self._path = path

    def opened(self) -> Any:
        return cv2.VideoCapture(str(self._path))


def test_a_camera_that_gives_no_more_frames_is_opened_anew_for_the_next_record(video: Path) -> None:
    camera = FromFile(video, skip_frames=1)
    result = camera.run_batch(pipelines.Batch.of([Data() for _ in range(5)], first=10))
    camera.close()
    assert {row: str(error) for row, error in result.failed.items()} == {
        13: "camera 0 gives no frame; it is opened anew for the next record"
    }
    assert result.rows.tolist() == [10, 11, 12, 14]
    assert [number_of(one) for one in result.batch.to_list()] == [0, 2, 4, 0]


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({}, {cv2.CAP_PROP_FRAME_WIDTH: 640, cv2.CAP_PROP_FRAME_HEIGHT: 480}),
        ({"width": None, "height": None}, {}),
        ({"width": 0, "height": 240}, {cv2.CAP_PROP_FRAME_HEIGHT: 240}),
    ],
)
def test_a_camera_keeps_its_own_size_where_none_is_asked_for(
    fields: dict[str, Any], asked: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[int, int] = {}

    class Camera:
        def __init__(self, number: int) -> None:
            self.number = number

        def set(self, setting: int, value: int) -> None:
            settings[setting] = value

    monkeypatch.setattr(cv2, "VideoCapture", Camera)
    step = FrameCapture.model_validate({"@type": "FRAME_CAPTURE", "camera": 2, **fields})
    assert FrameCaptureRunner(step, OpenContext()).opened().number == 2
    assert settings == asked


def test_a_camera_that_is_not_there_fails_the_record() -> None:
    if Path("/dev/video63").exists():
        pytest.skip("there is a camera 63")
    with pipelines.Sequence([FrameCapture(camera=63)]).open() as executor:
        (found,) = executor.run_many([Data()])
    assert isinstance(found, StepError)
    assert "camera 63 cannot be opened" in str(found)


def test_captured_images_stay_when_the_source_is_closed(video: Path) -> None:
    (frame,) = captured(1, file_path=video)
    assert isinstance(frame["image"], Image)
    assert frame["image"].get_as("png").startswith(b"\x89PNG")
