"""`streamer check` of a LOOKUP in a topic: what is wrong is said without a broker, and nothing is connected to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SERVICE = """
source: {{type: kafka, bootstrap: "localhost:1", topics: in, codec: json}}
pipeline: [{{"@type": LOOKUP, by: machine, take: {{limit: limits.max}}, {fields}}}]
sink: {{type: kafka, topic: out, codec: json}}
dead_letter: {{type: kafka, topic: dead}}
"""


def checked(cli: Any, folder: Path, fields: str, *options: str) -> Any:
    file = folder / "service.yaml"
    file.write_text(SERVICE.format(fields=fields))
    return cli("check", file, "--json", *options)


def test_check_names_the_topic_and_the_brokers_of_the_source_without_asking_them(cli: Any, tmp_path: Path) -> None:
    ended = checked(cli, tmp_path, "table: {topic: machines, codec: json}")
    assert ended.code == 0, ended
    (report,) = json.loads(ended.out)["services"]
    text = next(one["text"] for one in report["findings"] if one["part"] == "step 0:LOOKUP")
    assert text.startswith("tables, topic machines on localhost:1")
    assert text.endswith("which is read when the service starts")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ("table: {topc: machines}", 'topc: no such field; did you mean "topic"?'),
        ("table: {topic: machines, type: kafak}", 'there is no table of type "kafak"; did you mean "kafka"?'),
        ("table: {topic: machines, codec: jsn}", 'no codec of type "jsn"'),
        ("table: {topic: machines, client: {group.id: a}}", "group.id"),
        ("table: {topic: machines, client: {fetch.wait.max.mss: 1}}", "fetch.wait.max.ms"),
        ('table: {topic: machines, bootstrap: "http://a"}', "brokers are host:port"),
        ("table: {topic: machines}, path: a.csv", "it needs a file with the table"),
        ("table: {topic: machines}, delimiter: ';'", "delimiter"),
    ],
)
def test_check_says_what_is_wrong(cli: Any, tmp_path: Path, fields: str, text: str) -> None:
    ended = checked(cli, tmp_path, fields)
    assert ended.code == 2
    assert text in json.dumps(json.loads(ended.out or "{}"), ensure_ascii=False).replace('\\"', '"') + ended.err


def test_a_table_by_several_keys_is_refused(cli: Any, tmp_path: Path) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(SERVICE.format(fields="table: {topic: a}").replace("by: machine", "by: [site, machine]"))
    ended = cli("check", file, "--json")
    assert ended.code == 2
    assert "is one key of the record" in ended.out + ended.err


@pytest.mark.parametrize(
    ("client", "key"),
    [("oauth_cb: a:b", "table.client.oauth_cb"), ("plugin.library.paths: a.so", "table.client.plugin.library.paths")],
)
def test_no_code_refuses_what_the_client_would_run(cli: Any, tmp_path: Path, client: str, key: str) -> None:
    ended = checked(cli, tmp_path, f"table: {{topic: machines, codec: json, client: {{{client}}}}}", "--no-code")
    assert ended.code == 2
    assert key in ended.out + ended.err


def test_files_of_its_codec_have_to_be_listed_without_code(cli: Any, tmp_path: Path) -> None:
    ended = checked(cli, tmp_path, "table: {topic: machines, codec: {type: avro, schema: a.avsc}}", "--no-code")
    assert ended.code == 2
    assert "a.avsc is not listed" in ended.out + ended.err


@pytest.mark.slow
def test_check_with_connect_says_that_no_broker_answers(cli: Any, tmp_path: Path) -> None:
    ended = checked(cli, tmp_path, "table: {topic: machines, codec: json}", "--connect")
    assert ended.code == 1
    (report,) = json.loads(ended.out)["services"]
    text = next(one["text"] for one in report["findings"] if one["part"] == "pipeline")
    assert "0:LOOKUP: no Kafka answers on localhost:1" in text
