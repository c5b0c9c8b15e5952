"""FRAME_CAPTURE and VIDEO_CAPTURE: frames of a real video file; a camera only where there is one."""

import itertools
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numberedpictures import number_in
from outcomes import result_of
from rtspcamera import RtspCamera

import pipelines
from connectors.camera.address import address
from connectors.camera.camera import CameraSettings
from connectors.camera.capture import FrameCaptureRunner
from connectors.camera.video import Opening
from pipelines import Data, FrameCapture, Image, OpenContext, StepError, VideoCapture
from pipelines.data.result import Result
from pipelines.errors import StreamerError
from pipelines.executors.state.handover import hand_over

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


def shown_by(frame: Data) -> int:
    """The number in a picture of a test camera."""
    return number_in(frame["image"].get_as("numpy"))


def test_each_record_becomes_the_next_frame(video: Path) -> None:
    found = captured(FRAMES, file_path=video)
    assert [list(one) for one in found] == [["image"]] * FRAMES
    assert [number_of(one) for one in found] == [0, 1, 2, 3, 4]
    assert (found[0]["image"].width, found[0]["image"].height) == (32, 16)
    assert list(captured(1, file_path=video, output_key="frame")[0]) == ["frame"]


def test_frames_go_on_from_batch_to_batch(video: Path) -> None:
    with pipelines.Sequence([VideoCapture(file_path=f"file:{video}")]).open() as executor:
        assert [number_of(result_of(executor.run(Data()))) for _ in range(3)] == [0, 1, 2]


def test_a_video_goes_on_where_it_was_when_a_model_of_the_pipeline_changes(video: Path) -> None:
    pipeline = pipelines.Sequence([VideoCapture(file_path=video)])
    with pipeline.open(opening=0) as old, pipeline.open(opening=1) as new:
        before = [number_of(result_of(old.run(Data()))) for _ in range(2)]
        hand_over(old, new)
        old.close()
        assert before + [number_of(result_of(new.run(Data()))) for _ in range(2)] == [0, 1, 2, 3]


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


def test_the_error_names_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    (missing,) = captured(1, file_path=tmp_path / "none.avi")
    assert "none.avi cannot be opened or read: there is no file" in str(missing)
    (tmp_path / "text.avi").write_text("no video")
    (strange,) = captured(1, file_path=tmp_path / "text.avi")
    assert "its data are not a video that libav can read" in str(strange)
    with pytest.raises(StreamerError, match='"filePath"'):
        pipelines.Sequence([VideoCapture()]).open()


class FromNetwork(FrameCaptureRunner):
    """A camera of the network in the place of one of this machine; no machine that runs tests has to have one."""

    def __init__(self, camera: RtspCamera, **fields: Any) -> None:
        super().__init__(FrameCapture(**fields), OpenContext())
        self._url = camera.url

    def settings(self) -> CameraSettings:
        return replace(super().settings(), address=address(self._url), opening=Opening(wait=5.0, silence=1.0))


def captured_by(runner: FrameCaptureRunner, rows: int = 1) -> Result:
    return runner.run_batch(pipelines.Batch.of([Data() for _ in range(rows)], first=10))


def test_each_record_becomes_a_frame_of_now() -> None:
    with RtspCamera() as camera:
        runner = FromNetwork(camera)
        try:
            (first,) = captured_by(runner).batch.to_list()
            sent = camera.sent
            deadline = time.monotonic() + 30
            while camera.sent < sent + 8 and time.monotonic() < deadline:
                time.sleep(0.05)
            result = captured_by(runner, 3)
            later = [shown_by(one) for one in result.batch.to_list()]
        finally:
            runner.close()
    # Not one that waited since the first record; and no frame is given twice.
    assert (later[0] - shown_by(first)) % 20 > 3
    assert len(set(later)) == 3


def test_frames_of_a_camera_are_skipped() -> None:
    with RtspCamera() as camera:
        runner = FromNetwork(camera, skip_frames=2)
        try:
            found = [shown_by(one) for one in captured_by(runner, 3).batch.to_list()]
        finally:
            runner.close()
    assert all((after - before) % 20 >= 3 for before, after in itertools.pairwise(found))


def test_a_camera_that_gives_no_more_frames_fails_records_until_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.camera.camera._LEAST_WAIT", 0.5)
    monkeypatch.setattr("connectors.camera.camera._MOST_WAIT", 0.5)
    with RtspCamera() as camera:
        runner = FromNetwork(camera)
        try:
            assert not captured_by(runner).failed
            camera.vanish()
            deadline = time.monotonic() + 30
            while not (failed := captured_by(runner).failed) and time.monotonic() < deadline:
                time.sleep(0.01)
            assert re.search("camera 0 gives no frame: .*; it is opened anew all the time", str(failed[10]))
            camera.return_()
            deadline = time.monotonic() + 30
            while captured_by(runner).failed and time.monotonic() < deadline:
                time.sleep(0.01)
            assert not captured_by(runner).failed
        finally:
            runner.close()


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({}, {"video_size": "640x480"}),
        ({"width": None, "height": None}, {}),
        ({"width": 0, "height": 240}, {}),
    ],
)
def test_a_camera_keeps_its_own_size_where_none_is_asked_for(fields: dict[str, Any], asked: dict[str, str]) -> None:
    step = FrameCapture.model_validate({"@type": "FRAME_CAPTURE", "camera": 2, **fields})
    settings = FrameCaptureRunner(step, OpenContext()).settings()
    assert settings.address.target == "/dev/video2"
    assert settings.opening.options == asked


def test_a_camera_that_is_not_there_fails_the_record() -> None:
    if Path("/dev/video63").exists():
        pytest.skip("there is a camera 63")
    with pipelines.Sequence([FrameCapture(camera=63)]).open() as executor:
        (found,) = executor.run_many([Data()])
    assert isinstance(found, StepError)
    assert "camera 63 gives no frame: it is not there" in str(found)


def test_captured_images_stay_when_the_source_is_closed(video: Path) -> None:
    (frame,) = captured(1, file_path=video)
    assert isinstance(frame["image"], Image)
    assert frame["image"].get_as("png").startswith(b"\x89PNG")
