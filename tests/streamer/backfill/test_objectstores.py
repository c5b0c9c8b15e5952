"""Where a backfill reads and writes: object stores, on a real server of S3 on this machine."""

from __future__ import annotations

import gzip
from pathlib import Path

import fsspec.config
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingfacehub import hub_of
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from s3store import SECRET, S3Store
from tcpproxy import TcpProxy

from pipelines.errors import DefinitionError, StreamerError
from streamer.backfill.locations import place_of, store_of
from streamer.backfill.objectstores import ObjectStore
from streamer.backfill.patterns import Pattern

NAMES = ("day=1/a.parquet", "day=1/x.jsonl", "day=1/deep/c.parquet", "day=2/b.parquet")


def put(store: S3Store, bucket: str, *keys: str) -> None:
    for key in keys:
        store.client.put_object(Bucket=bucket, Key=key, Body=key.encode())


def matching(url: str) -> list[str]:
    place = place_of(url)
    return [file.relative for file in place.matching(Pattern.of(place.absolute(url)))]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("day=*/*.parquet", ["day=1/a.parquet", "day=2/b.parquet"]),
        ("**/*.parquet", ["day=1/a.parquet", "day=1/deep/c.parquet", "day=2/b.parquet"]),
        ("**", ["day=1/a.parquet", "day=1/deep/c.parquet", "day=1/x.jsonl", "day=2/b.parquet"]),
        ("**/deep/**/c.parquet", ["day=1/deep/c.parquet"]),
        ("day=1/*.parquet", ["a.parquet"]),
        ("day={1,3}/*.{parquet,jsonl}", ["day=1/a.parquet", "day=1/x.jsonl"]),
        ("{day=1/deep,day=2}/*", ["day=1/deep/c.parquet", "day=2/b.parquet"]),
        ("day=[2-9]/?.parquet", ["day=2/b.parquet"]),
        ("day=1/a.parquet", ["a.parquet"]),
        ("day=1", []),
        ("day=9/*", []),
        ("day=9/**/*", []),
        ("day=9/a.parquet", []),
    ],
)
def test_a_pattern_matches_in_a_store_what_it_matches_in_a_folder(
    store: S3Store, bucket: str, tmp_path: Path, pattern: str, expected: list[str]
) -> None:
    no_data = ("_SUCCESS", "day=1/.hidden", "_errors/day=1/a.parquet", "day=1/_a.parquet")
    put(store, bucket, *(f"data/{name}" for name in (*NAMES, *no_data)), "data", "database/a.parquet")
    put(store, bucket, "data/", "data/day=1/")
    for name in (*NAMES, *no_data):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert matching(f"s3://{bucket}/data/{pattern}") == matching(f"{tmp_path}/{pattern}") == expected


def test_a_pattern_may_begin_right_below_the_bucket_and_errors_are_read_when_they_are_named(
    store: S3Store, bucket: str
) -> None:
    put(store, bucket, *NAMES, "a.parquet", "_errors/a.parquet")
    assert matching(f"s3://{bucket}/*.parquet") == ["a.parquet"]
    assert matching(f"s3://{bucket}/day=*/*.parquet") == ["day=1/a.parquet", "day=2/b.parquet"]
    assert matching(f"s3://{bucket}/_errors/*") == ["a.parquet"]
    assert matching(f"s3://{bucket}/a.parquet/") == ["a.parquet"]


def test_more_files_than_one_answer_lists_are_all_seen(store: S3Store, bucket: str) -> None:
    # Over HTTP it takes half a minute.
    backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    for number in range(1003):
        backend.put_object(bucket, f"d/{number:04d}", b"")
    assert len(matching(f"s3://{bucket}/d/*")) == len(matching(f"s3://{bucket}/*/*")) == 1003
    assert len(ObjectStore("s3").names(f"s3://{bucket}/d")) == 1003


def test_a_file_has_its_size_and_a_stamp_that_changes_when_it_is_written_again(store: S3Store, bucket: str) -> None:
    place, url = ObjectStore("s3"), f"s3://{bucket}/day/a"

    def only(pattern: str) -> tuple[str, int, str]:
        (file,) = place.matching(Pattern.of(pattern))
        assert (file.path, file.relative) == (url, "a")
        return file.path, file.size, file.stamp

    place.write(url, b"123")
    first = only(url)
    assert first[1] == 3
    assert first == only(f"s3://{bucket}/day/*") == only(url)
    place.write(url, b"124")
    second = only(f"s3://{bucket}/day/*")
    assert second[1] == 3
    assert first[2] != second[2]


def test_a_file_appears_whole_or_not_at_all_and_none_of_it_before(store: S3Store, bucket: str) -> None:
    place, url = ObjectStore("s3"), f"s3://{bucket}/deep/er/a"

    def fail() -> None:
        with place.create(url) as file:
            file.write(bytes(20 << 20))
            file.flush()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert store.objects(bucket) == {}
    assert "Uploads" not in store.client.list_multipart_uploads(Bucket=bucket)
    with place.create(url) as file:
        file.write(b"whole")
        assert place.names(f"s3://{bucket}/deep/er") == []
    assert place.read(url) == b"whole"
    with pytest.raises(ZeroDivisionError):
        fail()
    assert place.read(url) == b"whole"
    place.remove(url)
    place.remove(url)
    assert store.objects(bucket) == {}
    assert place.names(f"s3://{bucket}/deep/er") == []


def test_a_large_file_is_written_in_parts(store: S3Store, bucket: str) -> None:
    place, url = ObjectStore("s3"), f"s3://{bucket}/large"
    block = bytes(range(256)) * 4096
    with place.create(url) as file:
        for _ in range(120):
            file.write(block)
    assert store.objects(bucket) == {"large": 120 << 20}
    assert "-" in store.client.head_object(Bucket=bucket, Key="large")["ETag"]
    with place.open(url) as content:
        content.seek((100 << 20) + 5)
        assert content.read(251) == block[5:256]


def test_names_are_those_of_the_files_in_a_folder(store: S3Store, bucket: str) -> None:
    place = ObjectStore("s3")
    put(
        store,
        bucket,
        "out/_manifest/b",
        "out/_manifest/a",
        "out/_manifest/deep/c",
        "out/x",
        "out/_manifest2/z",
        "out/_manifest/",
    )
    assert place.names(f"s3://{bucket}/out/_manifest") == ["a", "b"]
    assert place.names(f"s3://{bucket}/nothing") == []
    assert place.is_folder(f"s3://{bucket}/out")
    assert place.is_folder(f"s3://{bucket}")
    assert not place.is_folder(f"s3://{bucket}/out/x")
    assert not place.is_folder(f"s3://{bucket}/ou")


def test_parquet_and_compressed_lines_are_read_in_place(store: S3Store, bucket: str) -> None:
    place = ObjectStore("s3")
    table = pa.table({"id": range(100_000), "wide": [bytes(50)] * 100_000})
    with place.create(f"s3://{bucket}/a.parquet") as file:
        pq.write_table(table, file, row_group_size=10_000, compression=None, use_dictionary=False)
    with place.open(f"s3://{bucket}/a.parquet") as content, pq.ParquetFile(content) as parquet:
        ids = parquet.read_row_groups([3], columns=["id"])
    assert ids["id"].to_pylist() == list(range(30_000, 40_000))
    with place.open(f"s3://{bucket}/a.parquet") as content:
        assert pq.read_table(content).equals(table)
    place.write(f"s3://{bucket}/a.gz", gzip.compress(b"a\nb\n" * 1000))
    with place.open(f"s3://{bucket}/a.gz") as content, gzip.GzipFile(fileobj=content) as lines:
        assert lines.read() == b"a\nb\n" * 1000


def test_a_connection_that_breaks_ends_neither_reading_nor_writing(
    store: S3Store, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bytes(range(256)) * 4096
    with TcpProxy(store.port) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        place = ObjectStore("s3")
        proxy.cut_after("to server", 100_000)
        place.write(f"s3://{bucket}/a", content)
        proxy.cut_after("to client", 100_000)
        assert place.read(f"s3://{bucket}/a") == content
        assert proxy.connections > 2


def test_a_bucket_that_is_not_there_is_named(bucket: str) -> None:
    place = ObjectStore("s3")
    said = r"s3://nowhere{} cannot be {}: FileNotFoundError: .*check the names of bucket and folder"
    for pattern in ("*", "**/*", "a.parquet", "day=*/a"):
        with pytest.raises(StreamerError, match=said.format("", "listed")):
            matching(f"s3://nowhere/{pattern}")
    with pytest.raises(StreamerError, match=said.format("/out/a", "written")):
        place.write("s3://nowhere/out/a", b"")
    with pytest.raises(StreamerError, match=said.format("/a", "read")):
        place.read("s3://nowhere/a")


def test_wrong_credentials_are_an_error_that_says_where_they_come_from(bucket: str, guarded: None) -> None:
    place = ObjectStore("s3")
    said = r"cannot be {}: PermissionError: .*check the network, the credentials .* \(AWS_ACCESS_KEY_ID and .*\) and"
    with pytest.raises(StreamerError, match=said.format("listed")) as caught:
        matching(f"s3://{bucket}/**/*")
    with pytest.raises(StreamerError, match=said.format("listed")):
        matching(f"s3://{bucket}/a")
    with pytest.raises(StreamerError, match=said.format("written")):
        place.write(f"s3://{bucket}/a", b"1")
    with pytest.raises(StreamerError, match=said.format("read")):
        place.read(f"s3://{bucket}/a")
    assert SECRET not in str(caught.value)


def test_no_credentials_are_an_error_that_says_where_they_come_from(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(StreamerError, match=r"NoCredentialsError: .*check the network, the credentials .*AWS_PROFILE"):
        matching(f"s3://{bucket}/*")


@pytest.mark.timeout(120)
def test_a_store_that_nobody_runs_is_an_error(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StreamerError, match=rf"s3://{bucket} cannot be listed: EndpointConnectionError: "):
        matching(f"s3://{bucket}/*")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://", 'names no bucket; a URL is "?s3://BUCKET/FOLDER'),
        ("s3:///a/*", "names no bucket"),
        ("s3://*/a", "name the bucket without"),
        (f"s3://user:{SECRET}@bucket/a/*", r"^s3://bucket: a URL with a user or password opens no store"),
        ("s3a://bucket/a", r'behind s3a://; did you mean "s3"\?; there are s3://, gs://, az://, hf:// and paths'),
        ("file:///etc/*", "no files are read or written behind file://"),
        ("simplecache://s3/a", "behind simplecache://"),
    ],
)
def test_a_url_that_opens_no_store_is_refused(url: str, said: str) -> None:
    with pytest.raises(DefinitionError, match=said) as caught:
        matching(url)
    assert SECRET not in str(caught.value)


def test_a_chain_of_urls_reads_no_file_of_this_machine(store: S3Store, bucket: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("mine")
    place = ObjectStore("s3")
    url = f"s3://{bucket}/x::file://{tmp_path}/a"
    assert matching(url) == matching(f"s3://{bucket}/x::file://{tmp_path}/*") == []
    with pytest.raises(StreamerError, match="FileNotFoundError"):
        place.read(url)
    place.write(url, b"theirs")
    assert (tmp_path / "a").read_text() == "mine"
    assert list(store.objects(bucket)) == [url.removeprefix(f"s3://{bucket}/")]


def test_the_hub_of_hugging_face_takes_no_outputs() -> None:
    place = place_of("hf://datasets/org/name")
    with pytest.raises(DefinitionError, match="a commit for each file"), place.lock("hf://datasets/org/name/out"):
        pass
    with pytest.raises(DefinitionError, match="hf upload"):
        place.write("hf://datasets/org/name/out/a", b"")


def test_files_of_the_hub_of_hugging_face_are_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    content = bytes(range(256)) * (5 << 12)
    files = {"day=1/a.parquet": content, "day=1/deep/b.parquet": b"b", "day=2/c.parquet": b"c", "readme.md": b"r"}
    with hub_of("org/nets", files) as endpoint:
        store_of.cache_clear()
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setitem(fsspec.config.conf, "hf", {"endpoint": endpoint})
        assert matching("hf://org/nets/day=*/*.parquet") == ["day=1/a.parquet", "day=2/c.parquet"]
        assert matching("hf://org/nets/**/*.parquet") == [path for path in files if path.endswith("parquet")]
        place = place_of("hf://org/nets")
        (file,) = place.matching(Pattern.of("hf://org/nets/day=1/a.parquet"))
        assert (file.path, file.size, bool(file.stamp)) == ("hf://org/nets/day=1/a.parquet", len(content), True)
        with place.open(file.path) as opened:
            opened.seek(-300, 2)
            assert opened.read() == content[-300:]
            opened.seek(1000)
            assert opened.read(5 << 20) == content[1000:]
        store_of.cache_clear()
