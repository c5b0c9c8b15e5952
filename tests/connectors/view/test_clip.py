"""The sink `clip`: the contents of its files, with cameras and video files, and faults."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from camerareader import CameraReader, shown
from httpcamera import HttpCamera
from numberedpictures import clip as encoded
from numberedpictures import number_in, video
from rtspcamera import RtspCamera

from connectors.camera.config import CameraSourceConfig
from connectors.camera.footage import Footage
from connectors.camera.source import CameraSource
from connectors.contract.measures import check_measures
from connectors.contract.reader import Received
from connectors.message import Message, block_of
from connectors.view.clipfolder import ClipFolder
from connectors.view.clipsink import ClipSink
from connectors.view.config import ClipSinkConfig
from connectors.view.madeclip import MadeClip
from pipelines import Data
from pipelines.data.record import RecordContext
from pipelines.errors import StreamerError
from streamer.definition.loading import loads


class Recording:
    """Cameras and a sink that makes clips of them."""

    def __init__(self, cameras: dict[str, Any], each: dict[str, Any], fields: dict[str, Any]) -> None:
        self.source = CameraSource(CameraSourceConfig.model_validate({"cameras": cameras, "each": each}))
        self.sink = ClipSink(ClipSinkConfig.model_validate({"name": "clips", **fields}))
        self.sink.attach([self.source])
        self.folder: Path = fields["directory"]
        self.rows = 0

    def event(self, one: Received, **values: Any) -> Any:
        """Send a result that is of this picture."""
        record = RecordContext(
            "camera", one.lane.partition, offset=one.position, timestamp=one.message.timestamp, lane=one.lane
        )
        return self.send(Data(values, record=record))

    def send(self, data: Data) -> Any:
        self.rows += 1
        return self.sink.send(block_of([Message(data)], self.rows - 1), time.monotonic() + 60)

    def files(self) -> list[Path]:
        return sorted(self.folder.glob("*.m*"), key=lambda path: path.stat().st_mtime_ns)

    def confirmed(self) -> list[int]:
        return sorted(row for rows in self.sink.confirmed() for row in rows.tolist())


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Callable[..., tuple[Recording, CameraReader]]]:
    """`recording(cameras, each, **fields)` is an open sink and a reader of its cameras."""
    with ExitStack() as stack:

        def opened(
            cameras: dict[str, Any], each: dict[str, Any] | None = None, **fields: Any
        ) -> tuple[Recording, CameraReader]:
            made = Recording(cameras, each or {}, {"directory": tmp_path / "clips", **fields})
            made.sink.open()
            stack.callback(made.sink.close)
            return made, stack.enter_context(CameraReader(made.source))

        yield opened


def numbers(path: Path) -> list[int]:
    """The numbers of the pictures of a file; all of them have to be decodable."""
    with av.open(str(path)) as container:
        frames = list(container.decode(video=0))
    times = [float(frame.time or 0) for frame in frames]
    assert times == sorted(times)
    assert times[0] == 0
    return [number_in(frame.to_ndarray(format="bgr24").astype(np.uint8)) for frame in frames]


def until(happened: Callable[[], bool], reader: CameraReader | None = None) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        if reader is None:
            time.sleep(0.02)
        else:
            reader.poll()
            settle(reader)


def settle(reader: CameraReader) -> None:
    """No further results come of the pictures so far."""
    reader.cameras.acknowledge({one.lane: one.position + 1 for one in reader.received})


def follow(found: list[int], modulo: int = 20) -> bool:
    """Whether these pictures are one run of the camera's clip, none of them missing."""
    return all((after - before) % modulo == 1 for before, after in itertools.pairwise(found))


@pytest.mark.parametrize("codec", ["h264", "h265"])
@pytest.mark.parametrize("kind", ["mp4", "mkv"])
def test_a_clip_holds_the_pictures_before_and_after_an_event_as_the_camera_sent_them(
    recording: Any, codec: str, kind: str
) -> None:
    with RtspCamera(codec, fps=40) as camera:
        clips, reader = recording({"gate": camera.url}, before=0.5, after=0.5, format=kind)
        reader.see("gate", 40)
        [one] = reader.see("gate", 1)
        number = shown(one)
        assert clips.event(one) == {}
        assert clips.sink.barrier(time.monotonic() + 60) == {}
        assert clips.confirmed() == [0]
        until(lambda: clips.sink.files == 1, reader)
        [path] = clips.files()
        assert path.suffix == f".{kind}"
        found = numbers(path)
        assert follow(found)
        assert number in found
        # The camera has a key frame every five pictures.
        assert found[0] % 5 == 0
        assert 20 <= len(found) <= 60
        with av.open(str(path)) as container:
            packets = [bytes(packet) for packet in container.demux(video=0) if packet.size]
        sent = tuple(picture[-1] for picture in camera.shown.units)
        assert all(packet.endswith(sent) for packet in packets)
    check_measures(clips.sink)


def test_events_while_a_clip_is_written_make_it_longer_up_to_a_limit(recording: Any, tmp_path: Path) -> None:
    video(str(tmp_path / "film.mp4"), frames=300, fps=10, gop=10)
    clips, reader = recording({"film": str(tmp_path / "film.mp4")}, before="1s", after="2s", longest="8s")
    made: list[MadeClip] = []
    clips.sink.on_clip(made.append)
    # Of ten seconds of events, one a second: a clip of eight seconds, and one with the rest.
    for number in range(150, 250, 10):
        until(lambda number=number: len(reader.of("film")) > number, reader)  # type: ignore[misc]
        assert clips.event(reader.of("film")[number]) == {}
    reader.to_the_end()
    assert clips.sink.barrier(time.monotonic() + 60) == {}
    assert clips.confirmed() == list(range(10))
    clips.sink.close()
    first, second = (numbers(path) for path in clips.files())
    assert follow(first, 65536)
    assert first[0] <= 140
    assert first[-1] == 220
    assert second[0] <= 220
    assert second[-1] == 260
    # Other sinks are told, in the time of the pictures, which part of the film is in which file.
    begun = reader.of("film")[0].message.timestamp
    for clip, path, pictures in zip(made, clips.files(), (first, second), strict=True):
        assert (clip.camera, clip.path) == ("film", path)
        assert clip.begin - begun == pytest.approx(pictures[0] * 100, abs=2)
        assert clip.end - begun == pytest.approx(pictures[-1] * 100, abs=2)
    assert made[0].event == begun + 15_000


class HeldFolder(ClipFolder):
    """A folder that gives no path before it is told to."""

    told = threading.Event()

    def free(self, *event: Any) -> Path:
        assert self.told.wait(60)
        return super().free(*event)


def test_a_film_that_is_read_to_its_end_before_the_clip_begins_loses_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.view.clipsink.ClipFolder", HeldFolder)
    video(str(tmp_path / "film.mp4"), frames=400, fps=10, gop=10)
    source = CameraSource(CameraSourceConfig.model_validate({"cameras": {"film": str(tmp_path / "film.mp4")}}))
    sink = ClipSink(ClipSinkConfig(directory=tmp_path / "clips", before=1, after=2, longest=8))
    sink.attach([source])
    sink.open()
    with CameraReader(source) as reader:
        reader.see("film", 20)
        one = reader.of("film")[19]
        record = RecordContext("camera", "film", offset=one.position, timestamp=one.message.timestamp, lane=one.lane)
        assert sink.send(block_of([Message(Data({}, record=record))], 0), time.monotonic() + 60) == {}
        # Forty seconds of film, of which eleven are kept without need.
        reader.to_the_end()
        HeldFolder.told.set()
        assert sink.barrier(time.monotonic() + 60) == {}
        sink.close()
    [path] = (tmp_path / "clips").glob("*.mp4")
    assert numbers(path) == list(range(40))


def test_the_last_pictures_of_a_film_keep_no_clip_open_if_they_were_dropped(recording: Any, tmp_path: Path) -> None:
    video(str(tmp_path / "film.mp4"), frames=20, fps=10)
    film = {"url": str(tmp_path / "film.mp4"), "policy": "fifo", "max_frames": 100, "max_age": "4s"}
    with RtspCamera() as other:
        clips, reader = recording({"film": film, "gate": other.url}, before="1s", after="3s")
        while not reader.of("film"):
            assert reader.cameras.cameras()["film"]["drops"] == {}, "the machine stood still"
            reader.poll(max_records=1)
        # Nobody asks for the others until they are too old.
        until(lambda: reader.state("film") == "ended")
        clips.event(reader.of("film")[0])
        time.sleep(4.1)
        reader.wait(lambda: reader.cameras.cameras()["film"]["drops"] == {"old": 20 - len(reader.of("film"))})
        until(lambda: clips.sink.files == 1, reader)
        assert numbers(clips.files()[0]) == list(range(20))


@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_a_film_without_times_has_clips_of_the_right_length(recording: Any, tmp_path: Path, codec: str) -> None:
    units = [unit for picture in encoded(codec).units for unit in picture]
    (tmp_path / f"film.{codec}").write_bytes(b"".join(b"\0\0\0\1" + unit for unit in units))
    clips, reader = recording({"film": str(tmp_path / f"film.{codec}")}, before=0.1, after=0.1)
    clips.event(reader.see("film", 13)[-1])
    until(lambda: clips.sink.files == 1, reader)
    found = numbers(clips.files()[0])
    assert 12 in found
    assert 5 <= found[0] <= 10
    assert 14 <= found[-1] <= 17


def test_a_film_that_is_repeated_goes_on_in_a_file_of_its_own(recording: Any, tmp_path: Path) -> None:
    video(str(tmp_path / "film.mp4"), frames=20, fps=10)
    clips, reader = recording(
        {"film": {"url": str(tmp_path / "film.mp4"), "loop": True}}, before="1s", after="3s", format="mkv"
    )
    events = reader.see("film", 16)
    clips.event(events[-1])
    reader.see("film", 60)
    until(lambda: clips.sink.files >= 2, reader)
    clips.sink.close()
    first, second = (numbers(path) for path in clips.files()[:2])
    assert first[-1] == 19
    assert second[0] == 0


def test_a_camera_that_is_connected_to_anew_goes_on_in_a_file_of_its_own(recording: Any) -> None:
    with RtspCamera(fps=40) as camera:
        clips, reader = recording({"gate": camera.url}, before=0.2, after=4)
        reader.see("gate", 20)
        [one] = reader.see("gate", 1)
        clips.event(one)
        reader.see("gate", 10)
        camera.drop()
        until(lambda: clips.sink.files == 2, reader)
        first, second = (numbers(path) for path in clips.files())
        assert follow(first)
        assert follow(second)
        assert clips.files()[1].stem.endswith("-2")


@pytest.mark.parametrize(("before", "after"), [("h264", "h264"), ("h265", "h265")])
def test_pictures_of_another_size_go_to_a_file_of_their_own(recording: Any, before: str, after: str) -> None:
    with RtspCamera(before, fps=40) as camera:
        clips, reader = recording({"gate": camera.url}, before=0.2, after=1.5)
        reader.see("gate", 20)
        [one] = reader.see("gate", 1)
        clips.event(one)
        camera.shown = encoded(after, 320, 192)
        until(lambda: clips.sink.files == 2, reader)
        sizes = []
        for path in clips.files():
            with av.open(str(path)) as container:
                frames = list(container.decode(video=0))
            assert len({frame.width for frame in frames}) == 1
            sizes.append((frames[0].width, frames[0].height))
        assert sizes == [(160, 96), (320, 192)]


def test_an_http_camera_has_clips_with_times_of_receipt(recording: Any) -> None:
    with HttpCamera(fps=20) as camera:
        clips, reader = recording({"dock": camera.url}, before=0.5, after=0.5)
        reader.see("dock", 15)
        clips.event(reader.see("dock", 1)[0])
        until(lambda: clips.sink.files == 1, reader)
        [path] = clips.files()
        found = numbers(path)
        assert follow(found, 1000)
        with av.open(str(path)) as container:
            times = [float(frame.time or 0) for frame in container.decode(video=0)]
        # The demuxer of such cameras makes up 25 a second.
        assert times[-1] > 0.6


def test_an_event_of_a_film_that_was_read_on_meanwhile_has_its_clip(recording: Any, tmp_path: Path) -> None:
    video(str(tmp_path / "film.mp4"), frames=400, fps=10, gop=10)
    # One picture in two seconds: those that wait to be run are many times the eleven seconds that are kept anyway.
    cameras = {"film": {"url": str(tmp_path / "film.mp4"), "fps": 0.5}}
    clips, reader = recording(cameras, before="1s", after="1s")
    reader.to_the_end()
    for one in reader.of("film")[1:3]:
        assert clips.event(one) == {}
        assert clips.sink.barrier(time.monotonic() + 60) == {}
    clips.sink.close()
    assert [numbers(path) for path in clips.files()] == [list(range(10, 31)), list(range(30, 51))]


def test_results_that_come_after_the_film_was_read_make_one_clip_longer(recording: Any, tmp_path: Path) -> None:
    video(str(tmp_path / "film.mp4"), frames=100, fps=10, gop=10)
    clips, reader = recording({"film": str(tmp_path / "film.mp4")}, before="1s", after="1s")
    reader.to_the_end()
    for number in range(20, 60):
        assert clips.event(reader.of("film")[number]) == {}
        # The sink has looked at all packets, those behind the end of the clip among them.
        assert clips.sink.barrier(time.monotonic() + 60) == {}
    settle(reader)
    until(lambda: clips.sink.files == 1)
    [path] = clips.files()
    assert numbers(path) == list(range(10, 70))


def test_an_event_that_comes_after_its_picture_was_settled_has_what_is_left(recording: Any, tmp_path: Path) -> None:
    video(str(tmp_path / "film.mp4"), frames=400, fps=10, gop=20)
    clips, reader = recording({"film": str(tmp_path / "film.mp4")}, before="1s", after="1s")
    while len(reader.of("film")) < 400:
        reader.poll()
        for one in reader.of("film")[-1:]:
            clips.source.acknowledge({one.lane: one.position + 1})
    clips.event(reader.of("film")[0])
    clips.sink.close()
    assert clips.confirmed() == [0]
    [path] = clips.files()
    assert numbers(path)[0] > 200


def test_memory_is_bounded_whatever_a_camera_sends(recording: Any, tmp_path: Path) -> None:
    video(str(tmp_path / "film.mp4"), frames=100, fps=10, width=640, height=480)
    size = (tmp_path / "film.mp4").stat().st_size
    clips, reader = recording({"film": str(tmp_path / "film.mp4")}, before="5m", after="1s", memory=size // 4)
    reader.to_the_end()
    kept = next(measure.value for measure in clips.sink.metrics() if measure.name == "kept_bytes")
    assert 0 < kept <= size // 4


def test_names_are_made_of_values_without_leaving_the_folder(recording: Any, tmp_path: Path) -> None:
    video(str(tmp_path / "film.mp4"), frames=40, fps=10)
    clips, reader = recording(
        {"film": str(tmp_path / "film.mp4")}, before=0, after=0, file_name="{camera}-{label}-{count}-{x}"
    )
    reader.to_the_end()
    for at, label in enumerate(["../../etc/passwd", "a b/c\x00d" * 100, ".hidden", "ok", "ok"]):
        clips.event(reader.of("film")[at], label=label, count=7, x=np.zeros(3))
        assert clips.sink.barrier(time.monotonic() + 60) == {}
        until(lambda at=at: clips.sink.files > at, reader)  # type: ignore[misc]
    clips.sink.close()
    names = sorted(path.name for path in (tmp_path / "clips").iterdir())
    assert len(names) == 5
    assert {"film-ok-7-none.mp4", "film-ok-7-none-2.mp4", "film-_.._etc_passwd-7-none.mp4"} <= set(names)
    assert all(len(name) < 130 for name in names)
    assert {path.name for path in tmp_path.iterdir()} == {"film.mp4", "clips"}


def test_the_oldest_clips_are_deleted_and_nothing_else(recording: Any, tmp_path: Path) -> None:
    video(str(tmp_path / "film.mp4"), frames=40, fps=10)
    folder = tmp_path / "clips"
    folder.mkdir()
    others = ["notes.txt", "film.mp4", "other-clip.mkv", "film-1.mp4.bak"]
    for name in others:
        (folder / name).write_bytes(b"precious")
    clips, reader = recording({"film": str(tmp_path / "film.mp4")}, before=0, after=0, max_files=2)
    reader.to_the_end()
    for at in range(4):
        clips.event(reader.of("film")[at])
        assert clips.sink.barrier(time.monotonic() + 60) == {}
        until(lambda at=at: clips.sink.files > at, reader)  # type: ignore[misc]
    made = {path.name for path in folder.iterdir()} - set(others)
    assert len(made) == 2
    assert all((folder / name).read_bytes() == b"precious" for name in others)
    assert clips.sink.deleted == 2


def test_results_of_no_camera_are_refused_and_the_others_go_on(recording: Any, tmp_path: Path) -> None:
    video(str(tmp_path / "film.mp4"), frames=20, fps=10)
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    (pictures / "one.jpg").write_bytes(encoded("mjpeg").units[0][0])
    clips, reader = recording({"film": str(tmp_path / "film.mp4"), "stills": str(pictures)})
    reader.to_the_end()
    for data, why in [
        (Data({"x": 1}), "which picture"),
        (Data({}, record=RecordContext("kafka", "topic", offset=3)), "not a camera of this service"),
        (Data({}, record=RecordContext("camera", "stills", offset=0)), "folder of pictures"),
    ]:
        refused = clips.send(data)
        assert not refused[0].retriable
        assert why in str(refused[0])
    assert clips.event(reader.of("film")[-1]) == {}
    clips.sink.close()
    assert len(clips.files()) == 1


FULL = """
import resource, signal, sys, time
from pathlib import Path
sys.path[:0] = sys.argv[1:3]
from tests.connectors.view.test_clip import Recording, settle
from camerareader import CameraReader, shown
from connectors.view import clipsink
clipsink._AGAIN = 0.3
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder = Path(sys.argv[3])
clips = Recording({"film": str(folder / "film.mp4")}, {}, {"directory": folder / "clips", "before": "20s"})
clips.sink.open()
with CameraReader(clips.source) as reader:
    reader.to_the_end()
    # A film's clip is finished when no result before its end is to come.
    settle(reader)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))
    assert clips.event(reader.of("film")[150]) == {}
    lost = clips.sink.barrier(time.monotonic() + 60)
    assert list(lost) == [0], lost
    assert "cannot be written" in str(lost[0])
    assert "cannot be written" in clips.sink.down()
    refused = clips.event(reader.of("film")[151])
    assert refused[0].retriable
    # It is tried again meanwhile, and the disk is as full as before.
    time.sleep(2.0)
    assert clips.sink.down() is not None
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    deadline = time.monotonic() + 60
    while clips.sink.down() is not None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert clips.event(reader.of("film")[152]) == {}
    assert clips.sink.barrier(time.monotonic() + 60) == {}
    clips.sink.close()
    assert clips.sink.down() is None
    assert clips.sink.failed == 1
    assert clips.sink.files == 1, clips.sink.files
print("well")
"""


def test_a_full_disk_loses_its_clip_and_clips_go_on_when_there_is_room(tmp_path: Path, pytestconfig: Any) -> None:
    video(str(tmp_path / "film.mp4"), frames=200, fps=10)
    root = pytestconfig.rootpath
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(root), str(root / "tests/support"), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == "well", done.stderr


def test_a_camera_without_key_frames_has_no_clip_and_its_events_are_done(tmp_path: Path) -> None:
    sink = ClipSink(ClipSinkConfig(directory=tmp_path / "clips", before=1, after=0))
    kept = Footage(60, 1000, live=False)

    class Source:
        name = "camera"

        def keep_footage(self, seconds: float, max_bytes: int) -> dict[str, Footage]:
            return {"gate": kept}

    sink.attach([Source()])  # type: ignore[list-item]
    sink.open()
    kept.end()
    data = Data({}, record=RecordContext("camera", "gate", offset=1))
    assert sink.send(block_of([Message(data)]), time.monotonic() + 60) == {}
    assert sink.barrier(time.monotonic() + 60) == {}
    assert np.concatenate(sink.confirmed()).tolist() == [0]
    assert sink.failed == 1
    sink.close()


SERVICE = """
source: {{type: camera, cameras: {{gate: "rtsp://127.0.0.1/live"}}}}
pipeline: []
sink: {{type: clip, directory: clips, {}}}
"""


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ("file_name: ../x", "letters, digits"),
        ("file_name: .x", "letters, digits"),
        ('file_name: "{camera"', "letters, digits"),
        ("before: 1m, after: 1m, longest: 1m", "longest is less"),
        ("format: avi", "mp4"),
    ],
)
def test_fields_that_cannot_be_are_told(fields: str, why: str) -> None:
    with pytest.raises(StreamerError, match=why):
        loads(SERVICE.format(fields))


def test_a_clip_needs_a_camera() -> None:
    with pytest.raises(StreamerError, match="no source of this service"):
        loads(
            SERVICE.format("before: 1s").replace(
                'type: camera, cameras: {gate: "rtsp://127.0.0.1/live"}',
                "type: kafka, topics: [a], group: b, bootstrap: x",
            )
        )


TEST = "lavfi:testsrc2=size=64x48:rate=5"
KILLED = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[1:3]
from tests.connectors.view.test_clip import Recording, settle
from camerareader import CameraReader
from rtspcamera import RtspCamera
folder = Path(sys.argv[3])
with RtspCamera(fps=40) as camera:
    fields = {"directory": folder, "before": 0, "after": "60s", "format": sys.argv[4]}
    clips = Recording({"gate": camera.url}, {}, fields)
    clips.sink.open()
    with CameraReader(clips.source) as reader:
        [one] = reader.see("gate", 1)
        clips.event(one)
        reader.wait(lambda: any(part.stat().st_size > 20000 for part in folder.glob("*.part")), "a clip")
        print("begun", flush=True)
        while True:
            reader.poll()
"""


@pytest.mark.parametrize("kind", ["mp4", "mkv"])
def test_clips_of_a_killed_process_get_their_names_at_the_next_start(
    recording: Any, tmp_path: Path, pytestconfig: Any, kind: str
) -> None:
    root, folder = pytestconfig.rootpath, tmp_path / "clips"
    arguments = [str(root), str(root / "tests/support"), str(folder), kind]
    with subprocess.Popen([sys.executable, "-c", KILLED, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            [part] = folder.glob("*.part")
            # Another sink of the same folder leaves the file alone that is being written.
            recording({"test": TEST}, directory=folder, format=kind)
            assert part.exists()
        finally:
            process.kill()
    (folder / f"gate-20260101T000000.000Z.{kind}.part").write_bytes(b"")
    (folder / "notes.part").write_bytes(b"not ours")
    # A file of this name is there: the clip has a number.
    part.with_suffix("").write_bytes(b"older")
    recording({"test": TEST}, directory=folder, format=kind)
    clip = part.with_name(f"{part.with_suffix('').stem}-2.{kind}")
    assert sorted(folder.iterdir()) == sorted([folder / "notes.part", part.with_suffix(""), clip])
    assert follow(numbers(clip))
