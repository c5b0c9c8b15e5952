"""Backfills from and to an object store: a real server of S3 on this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backfills import rows, run, service_of, tree
from s3store import SECRET, S3Store

import streamer
from pipelines.errors import StreamerError

pytestmark = pytest.mark.timeout(300)
SUPPORT = Path(__file__).parents[2] / "support"
DOUBLED = [{"@type": "MAP", "select": {"double": "x * 2"}}]
FILES, ROWS = 8, 300


def service(folder: Path) -> streamer.Service:
    return service_of(folder, DOUBLED, keep=["id"])


def inputs(folder: Path) -> dict[str, Path]:
    """Two days of Parquet and one file of lines, with a record that fails, by key."""
    for day in (1, 2):
        (folder / f"in/day={day}").mkdir(parents=True)
        ids = range(day * 1000, day * 1000 + 100)
        pq.write_table(pa.table({"id": ids, "x": [row / 2 for row in ids]}), folder / f"in/day={day}/a.parquet")
    lines = [{"id": 1, "x": 2.0}, {"id": 2, "x": "two"}]
    (folder / "in/day=2/b.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {path.relative_to(folder).as_posix(): path for path in folder.glob("in/*/*")}


def upload(store: S3Store, bucket: str, files: dict[str, Path]) -> None:
    for key, path in files.items():
        store.client.put_object(Bucket=bucket, Key=key, Body=path.read_bytes())


def download(store: S3Store, bucket: str, prefix: str, folder: Path) -> Path:
    """The objects with this prefix, as files below a folder."""
    for key in store.objects(bucket):
        if key.startswith(f"{prefix}/"):
            path = folder / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(store.read(bucket, key))
    return folder / prefix


@pytest.mark.parametrize(("read", "written"), [("s3", "s3"), ("s3", "here"), ("here", "s3")])
def test_results_are_those_of_local_files_and_are_made_once(
    store: S3Store, bucket: str, tmp_path: Path, read: str, written: str
) -> None:
    files = inputs(tmp_path)
    upload(store, bucket, files)
    expected = run(service(tmp_path), f"{tmp_path}/in/day=*/*", tmp_path / "expected")
    given = f"s3://{bucket}" if read == "s3" else str(tmp_path)
    output: Any = f"s3://{bucket}/out" if written == "s3" else tmp_path / "out"

    summary = run(service(tmp_path), f"{given}/in/day=*/*", output)
    assert (summary.pieces, summary.rows, summary.errors, summary.failed) == (3, 202, 1, [])
    assert (expected.rows, expected.results) == (summary.rows, summary.results)
    there = download(store, bucket, "out", tmp_path / "loaded") if written == "s3" else output
    assert tree(there) == tree(tmp_path / "expected")

    again = run(service(tmp_path), f"{given}/in/day=*/*", output)
    assert (again.pieces, again.before) == (0, 3)
    pq.write_table(pa.table({"id": [7], "x": [1.5]}), files["in/day=1/a.parquet"])
    upload(store, bucket, {"in/day=1/a.parquet": files["in/day=1/a.parquet"]})
    new = run(service(tmp_path), f"{given}/in/day=*/*", output)
    assert (new.pieces, new.changed, new.results) == (1, 1, 1)
    there = download(store, bucket, "out", tmp_path / "new") if written == "s3" else output
    assert rows(there / "day=1/a.parquet") == [{"id": 7, "x": 1.5, "double": 3.0}]


def test_a_bucket_that_is_not_there_and_wrong_credentials_end_it_before_anything_runs(
    bucket: str, tmp_path: Path, guarded: None
) -> None:
    inputs(tmp_path)
    output: Any = f"s3://{bucket}/out"
    with pytest.raises(StreamerError, match=rf"s3://{bucket}/out.* cannot be .*check the network, the credentials"):
        run(service(tmp_path), f"{tmp_path}/in/day=*/*", output)
    with pytest.raises(
        StreamerError, match=rf"s3://{bucket}.* cannot be .*check the network, the credentials"
    ) as caught:
        run(service(tmp_path), f"s3://{bucket}/in/day=*/*", tmp_path / "out")
    assert SECRET not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_bucket_of_outputs_that_is_not_there_ends_it_before_anything_runs(bucket: str, tmp_path: Path) -> None:
    inputs(tmp_path)
    nowhere: Any = "s3://nowhere/out"
    with pytest.raises(StreamerError, match=r"s3://nowhere/out.* cannot be .*check the names of bucket and folder"):
        run(service(tmp_path), f"{tmp_path}/in/day=*/*", nowhere)
    with pytest.raises(StreamerError, match=r"s3://nowhere.* cannot be listed.*check the names of bucket and folder"):
        run(service(tmp_path), "s3://nowhere/in/day=*/*", tmp_path / "out")


def test_a_run_that_was_killed_is_gone_on_with(store: S3Store, bucket: str, tmp_path: Path) -> None:
    service_of(tmp_path, [{"@type": "FUNCTION", "function": "backfillsteps:doubled"}], keep=["id"])
    shutil.copy(SUPPORT / "backfillsteps.py", tmp_path)
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        pq.write_table(pa.table({"id": ids, "x": [row % 50 for row in ids]}), tmp_path / f"{number}.parquet")
        upload(store, bucket, {f"in/{number}.parquet": tmp_path / f"{number}.parquet"})
    places = ["--input", f"s3://{bucket}/in/*.parquet", "--output", f"s3://{bucket}/out"]
    command = [sys.executable, "-m", "streamer", "backfill", "service.yaml", *places, "--workers", "2", "--json"]

    def started() -> subprocess.Popen[str]:
        return subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True)

    def noted() -> int:
        keys = [key for key in store.objects(bucket) if key.startswith("out/_manifest/")]
        lines = [line for key in keys for line in store.read(bucket, key).splitlines()]
        return sum("files" in json.loads(line) for line in lines)

    process = started()
    while not noted():
        assert process.poll() is None
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    before = noted()
    assert "Uploads" not in store.client.list_multipart_uploads(Bucket=bucket)
    process = started()
    out, _ = process.communicate(timeout=250)
    summary = json.loads(out)
    assert process.returncode == 0
    assert (summary["before"], summary["pieces"]) == (before, FILES - before)
    results = tree(download(store, bucket, "out", tmp_path))
    assert [row["id"] for _, part in sorted(results.items()) for row in part] == list(range(FILES * ROWS))
