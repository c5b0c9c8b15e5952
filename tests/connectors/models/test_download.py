"""Models behind URLs: fetched once from a real HTTP server on this machine, checked, kept."""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from connectors.models import download
from connectors.models.cache import FetchError, cache_folder
from connectors.models.download import HTTP
from pipelines import Data, Onnx, OpenContext, Sequence, StepError
from pipelines.errors import StreamerError
from pipelines.plugins.modelfiles import is_here, is_remote, model_path

CONTENT = bytes(range(256)) * 40
SHA = hashlib.sha256(CONTENT).hexdigest()
CLOSING = threading.Event()
"""Tells answers that have no end that their server is closed."""


class Server:
    """`answers` maps a path to the answers to its requests, one after the other, the last one again and again."""

    def __init__(self) -> None:
        self.answers: dict[str, list[Callable[[BaseHTTPRequestHandler], None]]] = {}
        self.requests: list[tuple[str, str | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests.append((self.path, self.headers.get("Authorization")))
                listed = outer.answers.get(self.path.partition("?")[0], [status(404)])
                (listed.pop(0) if len(listed) > 1 else listed[0])(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        CLOSING.clear()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def url(self, path: str = "/m.bin") -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}{path}"

    def gives(self, *answers: Callable[[BaseHTTPRequestHandler], None], path: str = "/m.bin") -> str:
        self.answers[path] = list(answers)
        return self.url(path)

    def close(self) -> None:
        CLOSING.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def content(
    data: bytes = CONTENT, *, length: int | None = None, headers: dict[str, str] | None = None
) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        for name, value in (headers or {}).items():
            request.send_header(name, value)
        if length != -1:
            request.send_header("Content-Length", str(len(data) if length is None else length))
        request.end_headers()
        request.wfile.write(data)

    return answer


def status(code: int, location: str | None = None) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(code)
        if location is not None:
            request.send_header("Location", location)
        request.send_header("Content-Length", "0")
        request.end_headers()

    return answer


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server, and a cache of the test's own."""
    monkeypatch.setenv("STREAMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("STREAMER_MODEL_LIMIT", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    started = Server()
    yield started
    started.close()


def parts() -> list[Path]:
    return list(cache_folder().rglob("*.part"))


def test_a_model_is_fetched_once_and_kept_under_its_name(server: Server) -> None:
    url = server.gives(content())
    assert HTTP.cached(url) is None
    file = HTTP.fetch(url)
    assert (file.name, file.read_bytes()) == ("m.bin", CONTENT)
    assert file.is_relative_to(cache_folder())
    assert HTTP.fetch(url) == HTTP.cached(url) == file
    assert len(server.requests) == 1
    assert parts() == []


def test_urls_that_end_alike_do_not_share_a_file(server: Server) -> None:
    one = HTTP.fetch(server.gives(content(b"1"), path="/a/m.bin"))
    two = HTTP.fetch(server.gives(content(b"2"), path="/b/m.bin"))
    three = HTTP.fetch(server.gives(content(b"3"), path="/b/m.bin") + "?version=3")
    assert [file.read_bytes() for file in (one, two, three)] == [b"1", b"2", b"3"]


def test_a_checksum_is_checked_when_the_model_comes_and_in_the_cache(server: Server) -> None:
    url = server.gives(content())
    assert HTTP.fetch(f"{url}#sha256={SHA.upper()}").read_bytes() == CONTENT
    assert len(server.requests) == 1

    # The model behind the URL is another now, and the definition says so.
    server.gives(content(b"new"))
    new = hashlib.sha256(b"new").hexdigest()
    assert HTTP.cached(f"{url}#sha256={new}") is None
    assert HTTP.fetch(f"{url}#sha256={new}").read_bytes() == b"new"

    with pytest.raises(FetchError, match=rf"has the SHA-256 {new}, not {SHA}; it is another file") as caught:
        HTTP.fetch(f"{url}#sha256={SHA}")
    assert "m.bin" in str(caught.value)
    # The old file is still there.
    assert HTTP.fetch(url).read_bytes() == b"new"
    assert parts() == []


@pytest.mark.parametrize("ending", ["#sha256=12", "#md5=1", "#main"])
def test_another_ending_than_a_checksum_is_an_error(ending: str) -> None:
    with pytest.raises(FetchError, match="is not #sha256= and 64 hexadecimal digits"):
        HTTP.fetch(f"http://127.0.0.1:1/m.bin{ending}")


def test_a_url_without_a_host_is_an_error() -> None:
    with pytest.raises(FetchError, match="names no host"):
        HTTP.fetch("http:///m.bin")


@pytest.mark.slow
def test_a_download_that_breaks_off_is_repeated_and_leaves_nothing_behind(server: Server) -> None:
    url = server.gives(content(CONTENT[:1000], length=len(CONTENT)), status(503), content())
    assert HTTP.fetch(url).read_bytes() == CONTENT
    assert len(server.requests) == 3
    assert parts() == []


def test_a_server_that_stays_broken_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_ATTEMPTS", 2)
    url = server.gives(content(CONTENT[:1000], length=len(CONTENT)))
    with pytest.raises(FetchError, match=f"only 1000 of {len(CONTENT)} bytes arrived"):
        HTTP.fetch(url)
    assert len(server.requests) == 2
    assert HTTP.cached(url) is None
    assert parts() == []


def test_a_model_that_is_not_there_is_an_error_at_once(server: Server) -> None:
    with pytest.raises(FetchError, match=r'm\.bin: the server says 404 Not Found; check "modelUri"'):
        HTTP.fetch(server.url())
    assert len(server.requests) == 1


def test_a_server_that_is_not_there_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    monkeypatch.setattr(download, "_ATTEMPTS", 1)
    url = server.url()
    server.close()
    with pytest.raises(FetchError, match=r"cannot be fetched: .*check the address and the network"):
        HTTP.fetch(url)


@pytest.mark.parametrize("length", [None, -1], ids=["announced", "not announced"])
def test_a_model_over_the_limit_is_refused(server: Server, monkeypatch: pytest.MonkeyPatch, length: int | None) -> None:
    monkeypatch.setenv("STREAMER_MODEL_LIMIT", "4KiB")
    url = server.gives(content(length=length))
    with pytest.raises(FetchError, match="4096 are allowed; set STREAMER_MODEL_LIMIT"):
        HTTP.fetch(url)
    assert (HTTP.cached(url), parts()) == (None, [])

    monkeypatch.setenv("STREAMER_MODEL_LIMIT", "many")
    with pytest.raises(FetchError, match='STREAMER_MODEL_LIMIT: "many" is not a size'):
        HTTP.fetch(url)


def test_redirects_are_followed_and_credentials_stay_with_their_host(server: Server) -> None:
    server.gives(content(), path="/there")
    url = server.gives(status(302, server.url("/there")))
    with_credentials = url.replace("//", "//user:p%40ss@")
    assert HTTP.fetch(with_credentials).read_bytes() == CONTENT
    sent = "Basic " + base64.b64encode(b"user:p@ss").decode()
    assert server.requests == [("/m.bin", sent), ("/there", None)]


@pytest.mark.parametrize(
    "target",
    ["ftp://127.0.0.1:1/m.bin?key=hunter2", "file:///etc/hostname", "data:,x", "http://u:hunter2@127.0.0.1/m.bin"],
)
def test_redirects_to_other_schemes_and_with_passwords_are_not_followed(server: Server, target: str) -> None:
    url = server.gives(status(302, target))
    with pytest.raises(FetchError, match="follow") as caught:
        HTTP.fetch(url)
    assert len(server.requests) == 1
    assert "hunter2" not in str(caught.value)
    assert HTTP.cached(url) is None


def test_a_server_that_a_redirect_leads_to_is_named_when_it_cannot_be_reached(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "_ATTEMPTS", 1)
    url = server.gives(status(302, "http://127.0.0.1:1/storage/m.onnx?signature=abc"))
    with pytest.raises(FetchError) as caught:
        HTTP.fetch(url)
    told = f"{url} cannot be fetched: from http://127.0.0.1:1/storage/m.onnx, to which its server sends: "
    assert told in str(caught.value)
    assert "signature" not in str(caught.value)


def test_a_redirect_in_a_circle_is_an_error(server: Server) -> None:
    url = server.gives(status(302, server.url()))
    with pytest.raises(FetchError, match=r"302 Found again and again; check"):
        HTTP.fetch(url)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (content(b""), "the server sends an empty answer"),
        (content(b"", length=-1), "the server sends an empty answer"),
        (status(204), "the server sends an empty answer"),
        (content(b"<p>log in</p>", headers={"Content-Type": "text/html; charset=utf-8"}), "a web page instead"),
        (content(headers={"Content-Encoding": "gzip"}), "compresses it"),
    ],
)
def test_an_answer_that_is_no_model_is_an_error_and_not_kept(
    server: Server, answer: Callable[[BaseHTTPRequestHandler], None], said: str
) -> None:
    url = server.gives(answer)
    with pytest.raises(FetchError, match=said):
        HTTP.fetch(url)
    assert (HTTP.cached(url), parts(), len(server.requests)) == (None, [], 1)


def test_a_model_that_is_served_as_a_web_page_is_believed_by_its_checksum(server: Server) -> None:
    url = server.gives(content(headers={"Content-Type": "text/html"}))
    assert HTTP.fetch(f"{url}#sha256={SHA}").read_bytes() == CONTENT


def test_a_server_that_gives_more_than_it_says_gives_what_it_said(server: Server) -> None:
    url = server.gives(content(CONTENT + b"more", length=len(CONTENT)))
    assert HTTP.fetch(url).read_bytes() == CONTENT


def test_an_answer_in_chunks_is_read_to_its_end(server: Server) -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.protocol_version = "HTTP/1.1"
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        for part in (CONTENT[:1000], CONTENT[1000:]):
            request.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        request.wfile.write(b"0\r\n\r\n")

    assert HTTP.fetch(server.gives(answer)).read_bytes() == CONTENT


def dripping(before: bytes, drip: bytes = b"x") -> Callable[[BaseHTTPRequestHandler], None]:
    """An answer that begins so and never ends, a byte every few milliseconds."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        try:
            request.wfile.write(before)
            while not CLOSING.is_set():
                request.wfile.write(drip)
                time.sleep(0.005)
        except OSError:
            pass
        request.close_connection = True

    return answer


HEAD = b"HTTP/1.1 200 OK\r\n"
DRIPS = [
    pytest.param(dripping(b"", b"HTTP"), id="status line"),
    pytest.param(dripping(HEAD + b"X-Long: "), id="header"),
    pytest.param(dripping(HEAD, b"A: b\r\n"), id="headers"),
    pytest.param(dripping(HEAD + b"Content-Length: 100000\r\n\r\n"), id="content"),
    pytest.param(dripping(HEAD + b"\r\n"), id="content without a length"),
    pytest.param(dripping(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"), id="chunks"),
    pytest.param(dripping(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;"), id="a chunk's first line"),
    pytest.param(dripping(HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"A: b\r\n"), id="trailers"),
]


@pytest.mark.parametrize("answer", DRIPS)
@pytest.mark.slow
def test_a_server_that_drips_is_given_up(
    server: Server, monkeypatch: pytest.MonkeyPatch, answer: Callable[[BaseHTTPRequestHandler], None]
) -> None:
    monkeypatch.setattr(download, "_WINDOW", 0.4)
    url = server.gives(answer)
    with pytest.raises(FetchError, match=r"too slowly|the server sends|cannot be fetched") as caught:
        HTTP.fetch(url)
    assert "modelUri" in str(caught.value) or "network" in str(caught.value)
    assert HTTP.cached(url) is None


@pytest.mark.parametrize("answer", DRIPS)
@pytest.mark.slow
def test_a_model_that_takes_too_long_altogether_is_given_up(
    server: Server, monkeypatch: pytest.MonkeyPatch, answer: Callable[[BaseHTTPRequestHandler], None]
) -> None:
    monkeypatch.setattr(download, "_LEAST", 0)
    monkeypatch.setattr(download, "_WINDOW", 0.1)
    monkeypatch.setenv("STREAMER_MODEL_TIMEOUT", "600ms")
    with pytest.raises(FetchError, match=r"is not here after 0.6 s|cannot be fetched"):
        HTTP.fetch(server.gives(answer))


def test_attempts_share_the_time_that_there_is(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMER_MODEL_TIMEOUT", "300ms")
    with pytest.raises(FetchError, match=r"is not here after 0.3 s, .*set STREAMER_MODEL_TIMEOUT"):
        HTTP.fetch(server.gives(status(503), dripping(HEAD + b"Content-Length: 100000\r\n\r\n")))
    monkeypatch.setenv("STREAMER_MODEL_TIMEOUT", "soon")
    with pytest.raises(FetchError, match='STREAMER_MODEL_TIMEOUT: "soon" is not a duration'):
        HTTP.fetch(server.gives(content()))


def test_a_download_that_was_given_up_leaves_no_file_and_no_thread(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "_WINDOW", 0.2)
    before = set(threading.enumerate())
    with pytest.raises(FetchError, match="too slowly"):
        HTTP.fetch(server.gives(dripping(HEAD + b"Content-Length: 100000\r\n\r\n")))
    assert parts() == []
    # One that answers a request is the server's.
    assert [one.name for one in set(threading.enumerate()) - before if "process_request" not in one.name] == []


def test_other_users_may_read_the_cache_as_far_as_the_umask_says(server: Server) -> None:
    mask = os.umask(0o022)
    try:
        assert HTTP.fetch(server.gives(content())).stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(mask)


def test_blanks_and_letters_of_other_alphabets_in_a_url_are_quoted(server: Server) -> None:
    url = server.gives(content(), path="/m%C3%A4%20%25.bin")
    assert HTTP.fetch(url.replace("m%C3%A4%20%25.bin", "m\u00e4 %25.bin") + "?a=b c&d=%20").read_bytes() == CONTENT
    assert server.requests == [("/m%C3%A4%20%25.bin?a=b%20c&d=%20", None)]


@pytest.mark.parametrize(
    "wrong",
    ["http://[::1/m", "http://h:port/m", "http://h:99999/m", "http://a b/m", "http://:80/m", "http://ex\u2100a/m"],
)
def test_a_malformed_url_is_an_error_that_shows_no_password(wrong: str, server: Server) -> None:
    with pytest.raises(FetchError, match='"modelUri"') as caught:
        HTTP.fetch(wrong.replace("//", "//user:hunter2@"))
    assert "hunter2" not in str(caught.value)


def test_a_user_without_a_home_is_told_where_to_put_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("STREAMER_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(variable, raising=False)
    # As Python leaves it for a user without a home.
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with pytest.raises(FetchError, match="STREAMER_CACHE sets a folder"):
        cache_folder()


def test_the_reason_phrase_of_a_server_is_not_repeated_in_the_error(server: Server) -> None:
    url = server.gives(lambda request: request.send_error(404, "\x1b[31mred"))
    with pytest.raises(FetchError) as caught:
        HTTP.fetch(url)
    assert "404 Not Found" in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_secrets_of_a_url_that_nothing_can_fetch_are_not_shown() -> None:
    with pytest.raises(StreamerError, match="nothing can fetch") as caught:
        model_path("gopher://user:hunter2@host/m.bin?key=hunter2#hunter2", OpenContext())
    assert "gopher://host/m.bin" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_secrets_of_a_url_are_not_shown(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    said: list[str] = []
    url = server.gives(content()).replace("//", "//user:hunter2@") + "?token=hunter2"
    with caplog.at_level(logging.INFO):
        HTTP.fetch(url, said.append)
    with pytest.raises(FetchError) as caught:
        HTTP.fetch(url.replace("/m.bin", "/no.bin"))
    assert said
    assert said[0].startswith("fetching m.bin: ")
    assert "fetched" in caplog.text
    assert "hunter2" not in caplog.text + "".join(said) + str(caught.value)


def test_many_at_once_get_the_same_whole_file(server: Server) -> None:
    url = server.gives(content())
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(HTTP.fetch(url).read_bytes())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [CONTENT] * 8
    assert parts() == []


def test_old_partial_downloads_are_removed_and_recent_ones_are_kept(server: Server) -> None:
    url = server.gives(content())
    folder = HTTP.fetch(url).parent
    old, young = folder / "old.part", folder / "young.part"
    for part in (old, young):
        part.write_bytes(b"half")
    long_ago = time.time() - 10 * 86400
    os.utime(old, (long_ago, long_ago))
    (folder / "m.bin").unlink()
    HTTP.fetch(url)
    assert (old.exists(), young.exists()) == (False, True)


def test_a_cache_that_cannot_be_written_is_an_error_that_names_the_variable(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("STREAMER_CACHE", str(tmp_path / "file"))
    with pytest.raises(FetchError, match="STREAMER_CACHE sets another folder"):
        HTTP.fetch(server.gives(content()))


@pytest.mark.skipif(sys.platform != "linux", reason="platformdirs knows where other platforms keep such things")
def test_the_cache_is_where_the_platform_keeps_such_things(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("STREAMER_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "streamer"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "streamer"


def test_a_step_takes_its_model_from_a_url(server: Server) -> None:
    port = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 2]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", port[:1], port[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    url = server.gives(content(model.SerializeToString()), path="/neg.onnx")
    assert (is_remote(url), is_here(url)) == (True, False)
    for _ in range(2):
        with Sequence([Onnx(url)]).open() as executor:
            found = executor.run(Data({"x": np.array([1, 2], "f4")}))
        assert isinstance(found, Data)
        assert found["y"].tolist() == [-1, -2]
    assert len(server.requests) == 1
    assert is_here(url)
    with pytest.raises(StepError, match="the server says 404"):
        Sequence([Onnx(server.url("/other.onnx"))]).open()


def test_a_fetched_file_that_is_no_model_is_told_with_its_url_and_the_way_to_fetch_it_again(server: Server) -> None:
    url = server.gives(content(b"version https://git-lfs.github.com/spec/v1\n"), path="/m.onnx")
    signed = url.replace("://", "://me:hunter2@") + "?signature=abc"
    with pytest.raises(StepError) as caught:
        Sequence([Onnx(signed)]).open()
    assert f"; it was fetched from {url}, and will be again once this file is deleted" in str(caught.value)
    assert str(cache_folder()) in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_paths_and_file_uris_are_taken_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "m x.onnx").write_bytes(b"")
    context = OpenContext(base=tmp_path)
    whole = (tmp_path / "m x.onnx").as_uri()
    uris = (whole, whole.replace("file://", "FILE://"), whole.replace("file://", "file://localhost"))
    for uri in ("m x.onnx", "file:m x.onnx", str(tmp_path / "m x.onnx"), *uris):
        assert not is_remote(uri)
        assert model_path(uri, context) == tmp_path / "m x.onnx"
