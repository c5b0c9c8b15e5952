"""`streamer test`: cases beside a service."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines import Image

DIGITS = Path(__file__).parents[3] / "examples" / "digits"


@pytest.fixture
def service(tmp_path: Path) -> Path:
    """The digits example, which knows which digit a picture of 8 by 8 shows."""
    for name in ("digits.yaml", "digits.pipeline.yaml", "digits.onnx"):
        shutil.copy(DIGITS / name, tmp_path)
    return tmp_path / "digits.yaml"


@pytest.fixture(scope="module")
def digit() -> tuple[list[list[int]], str]:
    """An image and what it shows."""
    with np.load(DIGITS / "digits.npz") as arrays:
        return arrays["images"][0].tolist(), str(arrays["labels"][0])


def case(service: Path, name: str, text: Any) -> Path:
    folder = service.parent / "cases"
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return path


def test_cases_beside_the_service_are_run_and_compared(cli: Any, service: Path, digit: Any) -> None:
    image, label = digit
    case(service, "right.json", {"input": {"image": image, "id": 7}, "expect": {"label": label, "id": 7}})
    wrong = {"input": {"image": image}, "expect": {"label": "x", "prob": 2.0, "more": 1}}
    case(service, "wrong.yaml", json.dumps(wrong))
    ended = cli("test", service)
    assert ended.code == 1
    lines = ended.out.splitlines()
    assert lines[0].split()[:2] == ["ok", "right"]
    assert lines[1].split()[:2] == ["wrong", "wrong"]
    assert lines[2].strip() == f"label: expected 'x', got '{label}'"
    assert lines[3].strip().startswith("prob: expected 2.0, got 0.")
    assert lines[4].strip() == "more: is missing; there are prob, label"
    assert lines[5] == "2 cases: 1 ok, 1 wrong"


def test_the_cases_of_the_digits_example_are_right(cli: Any) -> None:
    ended = cli("test", DIGITS / "digits.yaml")
    assert ended.code == 0, ended.out + ended.err
    assert "2 cases: 2 ok" in ended.out


def test_a_case_can_be_a_line_a_picture_or_a_file_of_its_own(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "size.yaml").write_text(
        "source: {type: memory, topic: a}\nsink: {type: memory, topic: b}\n"
        "pipeline: {steps: [{'@type': IMAGE_RESIZE, inputNames: [image], height: 2, width: 3}]}\n"
    )
    (tmp_path / "cases").mkdir()
    picture = Image(np.full((4, 6, 3), 90, np.uint8))
    (tmp_path / "cases" / "grey.png").write_bytes(picture.get_as("png"))
    np.save(tmp_path / "cases" / "n.npy", np.arange(3.0))
    (tmp_path / "cases" / "two.jsonl").write_text(
        '{"input": {"image": {"@file": "grey.png"}, "n": {"@file": "n.npy"}}, "expect": {"n": [0, 1, 2]}}\n\n'
        '{"name": "second", "input": {"image": {"@file": "grey.png"}, "n": 1}, "expect": {"n": 1}, "exact": true}\n'
    )
    ended = cli("test", tmp_path / "size.yaml")
    assert ended.code == 1
    assert [line.split()[:2] for line in ended.out.splitlines()[:2]] == [["ok", "two-1"], ["wrong", "second"]]
    assert "image: is there, IMAGE 3x2x3, and is not expected" in ended.out
    ended = cli("test", tmp_path / "size.yaml", tmp_path / "cases" / "grey.png", "--json")
    assert ended.code == 0
    (found,) = json.loads(ended.out)["cases"]
    assert found["name"] == "grey"
    assert found["results"][0]["image"].startswith("image 3x2")


def test_failing_in_the_right_step_and_dropping_can_be_expected(cli: Any, service: Path, digit: Any) -> None:
    bad = {"input": {"image": [1, 2, 3]}}
    case(service, "1.json", {**bad, "fails": True})
    case(service, "2.json", {**bad, "fails": "0:ONNX"})
    case(service, "3.json", {**bad, "fails": "1:CLASSIFIER_OUTPUT"})
    case(service, "4.json", {"input": {"image": digit[0]}, "fails": True})
    case(service, "5.json", bad)
    case(service, "6.json", {"input": "no message", "fails": "decode"})
    case(service, "7.json", {"input": {"image": digit[0]}, "expect": []})
    ended = cli("test", service, "--json")
    assert ended.code == 1
    found = json.loads(ended.out)
    assert [one["ok"] for one in found["cases"]] == [True, True, False, False, False, True, False]
    problems = [one["problems"][0] for one in found["cases"] if not one["ok"]]
    assert problems[0] == "no record failed in 1:CLASSIFIER_OUTPUT, and one should have; one failed in 0:ONNX"
    assert problems[1] == "no record failed, and one should have"
    assert problems[2].startswith("failed in 0:ONNX: ")
    assert problems[3] == "expected 0 results, got 1"


def test_several_records_are_one_case_with_results_in_order(cli: Any, service: Path) -> None:
    with np.load(DIGITS / "digits.npz") as arrays:
        images, labels = arrays["images"][:3].tolist(), arrays["labels"][:3].tolist()
    expect = [{"label": str(label)} for label in labels]
    case(service, "three.json", {"input": [{"image": image} for image in images], "expect": expect})
    assert cli("test", service).code == 0
    expect[1]["label"] = "x"
    case(service, "three.json", {"input": [{"image": image} for image in images], "expect": expect})
    ended = cli("test", service)
    assert ended.code == 1
    assert "result 1: label: expected 'x'" in ended.out


def test_key_and_headers_of_a_case_reach_the_pipeline(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        "source: {type: memory, topic: a, into: {key: device, headers.from: from}}\n"
        "sink: {type: memory, topic: b}\npipeline: []\n"
    )
    (tmp_path / "c.yaml").write_text(
        "input: {x: 1}\nkey: d7\nheaders: {from: test}\nexpect: {x: 1, device: d7, from: test}\nexact: true\n"
    )
    assert cli("test", tmp_path / "s.yaml", tmp_path / "c.yaml").code == 0


def test_the_sink_and_source_that_are_meant_can_be_named(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        "source: [{type: memory, topic: a, name: left}, {type: memory, topic: b, name: right}]\n"
        "sink: [{type: memory, topic: c, name: all}, {type: memory, topic: d, name: high, when: {x: {gt: 5}}}]\n"
        "pipeline: []\n"
    )
    (tmp_path / "c.yaml").write_text(
        "name: high\ninput: {x: 6}\nsource: right\nsink: high\nexpect: {x: 6}\n---\n"
        "name: low\ninput: {x: 5}\nsink: high\nexpect: []\n---\nname: all\ninput: {x: 5}\nexpect: {x: 5}\n"
    )
    assert cli("test", tmp_path / "s.yaml", tmp_path / "c.yaml").code == 0
    (tmp_path / "c.yaml").write_text("input: {x: 6}\nsink: hihg\n")
    ended = cli("test", tmp_path / "s.yaml", tmp_path / "c.yaml")
    assert ended.code == 2
    assert 'no sink "hihg"; did you mean "high"?' in ended.err


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("input: {x: 1}\nexpects: {x: 1}\n", 'c.yaml:2: expects: no such field; did you mean "expect"?'),
        ("expect: {x: 1}\n", "c.yaml: input: "),
        ("- 1\n", "a case is a mapping with input"),
        ("input: {x: null}\n", 'case "c": '),
        ("input: {x: {'@file': none.png}}\n", "none.png"),
        ("input: {x: {'@file': c.yaml}}\n", "or a .npy file is needed"),
    ],
)
def test_a_case_that_is_none_is_told_with_its_place(cli: Any, service: Path, text: str, reason: str) -> None:
    file = case(service, "c.yaml", text)
    ended = cli("test", service, file)
    assert ended.code == 2
    assert reason.replace("c.yaml: input", f"{file}:1: input") in ended.err or reason in ended.err


def test_without_cases_it_says_where_to_put_them(cli: Any, service: Path) -> None:
    ended = cli("test", service)
    assert ended.code == 2
    assert f"write some into {service.parent / 'cases'}" in ended.err


def test_a_service_with_code_is_refused_where_code_is(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        "source: {type: memory, topic: a}\nsink: {type: memory, topic: b}\n"
        "pipeline: [{'@type': FUNCTION, function: 'no_such_module:f'}]\n"
    )
    (tmp_path / "c.yaml").write_text("input: {x: 1}\n")
    ended = cli("test", tmp_path / "s.yaml", tmp_path / "c.yaml", "--no-code")
    assert ended.code == 2
    assert "--no-code (STREAMER_NO_CODE) refuses code" in ended.err
    assert "no_such_module" not in sys.modules


def test_the_settings_of_the_service_do_not_reach_outside(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        "source: {type: kafka, topics: a, bootstrap: 'localhost:1'}\nsink: {type: kafka, topic: b}\n"
        "dead_letter: {type: file, path: dead.jsonl, format: jsonl}\npipeline: []\n"
        "control: {listen: '127.0.0.1:1'}\nprofile: {file: profile.json}\n"
    )
    (tmp_path / "c.yaml").write_text("input: 'broken'\nfails: decode\n")
    ended = cli("test", tmp_path / "s.yaml", tmp_path / "c.yaml")
    assert ended.code == 0, ended.out + ended.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.yaml", "s.yaml"]
