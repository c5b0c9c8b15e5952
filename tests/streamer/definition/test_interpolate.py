"""References in the scalars of a service file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamer.definition.interpolate import InterpolationError, interpolate

HERE = Path()


def replaced(tree: Any, base: Path = HERE, **environment: str) -> Any:
    return interpolate(tree, base=base, environment=environment)


def test_a_variable_is_replaced_wherever_a_text_stands() -> None:
    tree = {"source": [{"bootstrap": "${HOST}:${PORT}"}], "n": 3}
    assert replaced(tree, HOST="broker", PORT="9092") == {"source": [{"bootstrap": "broker:9092"}], "n": 3}


def test_the_document_itself_stays_as_it_was() -> None:
    tree = {"a": ["${X}"]}
    replaced(tree, X="1")
    assert tree == {"a": ["${X}"]}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({}, "localhost:9092"), ({"KAFKA": ""}, "localhost:9092"), ({"KAFKA": "b:1"}, "b:1")],
)
def test_a_default_stands_in_for_an_undefined_or_empty_variable(environment: dict[str, str], expected: str) -> None:
    assert interpolate("${KAFKA:-localhost:9092}", base=HERE, environment=environment) == expected


def test_a_default_may_be_empty() -> None:
    assert replaced("x${A:-}y") == "xy"


def test_a_defined_variable_may_be_empty() -> None:
    assert replaced("x${A}y", A="") == "xy"


def test_two_dollars_are_one_and_a_lone_dollar_stands_for_itself() -> None:
    assert replaced("$${A} costs 5$ or $5, ^topic$ $$$$") == "${A} costs 5$ or $5, ^topic$ $$"


def test_references_in_the_value_of_a_variable_are_not_replaced() -> None:
    assert replaced("${A}", A="${B} $$") == "${B} $$"


@pytest.mark.parametrize("text", ["{type: json}", "[a, b]", "null", "yes", "0123", "12", "a: b\nc: d"])
def test_the_value_of_a_variable_stays_text(text: str) -> None:
    assert replaced({"codec": "${A}"}, A=text) == {"codec": text}


def test_keys_are_not_touched() -> None:
    assert replaced({"${A}": 1}, A="b") == {"${A}": 1}


def test_a_part_can_be_left_untouched_but_not_a_text_in_its_place() -> None:
    tree = {"pipeline": {"steps": [{"code": "${A}"}]}, "name": "${A}"}

    def found(tree: Any) -> Any:
        return interpolate(tree, base=HERE, environment={"A": "b"}, untouched=lambda path: path == ("pipeline",))

    assert found(tree) == {"pipeline": {"steps": [{"code": "${A}"}]}, "name": "b"}
    assert found({"pipeline": "${A}.yaml"}) == {"pipeline": "b.yaml"}


def test_an_undefined_variable_is_an_error_that_says_where_and_what_to_do() -> None:
    with pytest.raises(InterpolationError, match=r"PASSWORD is not defined; set it, or write \$\{PASSWORD:-") as raised:
        replaced({"source": [{"client": {"sasl.password": "${PASSWORD}"}}]})
    assert raised.value.path == ("source", 0, "client", "sasl.password")


def test_an_undefined_variable_names_a_similar_one() -> None:
    with pytest.raises(InterpolationError, match='did you mean "KAFKA_BOOTSTRAP"'):
        replaced("${KAFKA_BOOTSTRP}", KAFKA_BOOTSTRAP="x")


@pytest.mark.parametrize("text", ["${", "a ${VAR", "${VAR:-x"])
def test_an_unclosed_brace_is_an_error(text: str) -> None:
    with pytest.raises(InterpolationError, match="no closing brace"):
        replaced(text, VAR="x")


@pytest.mark.parametrize("text", ["${}", "${1A}", "${A B}", "${A:default}", "${A-b}", "${A:-${B}}", "${env:A}"])
def test_a_malformed_reference_is_an_error(text: str) -> None:
    with pytest.raises(InterpolationError, match="is not a reference"):
        replaced(text, A="x", B="y")


def test_a_file_is_read_without_its_line_end_and_relative_to_the_service_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("pa$$ ${A}\n")
    assert replaced("${file:secret}", tmp_path) == "pa$$ ${A}"
    assert replaced(f"${{file:{tmp_path}/secret}}") == "pa$$ ${A}"


def test_a_missing_a_huge_and_a_binary_file_are_errors_that_name_the_file(tmp_path: Path) -> None:
    (tmp_path / "huge").write_bytes(b"x" * (1 << 20) + b"x")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(InterpolationError, match=r"none cannot be read: No such file"):
        replaced("${file:none}", tmp_path)
    with pytest.raises(InterpolationError, match=r"huge is larger"):
        replaced("${file:huge}", tmp_path)
    with pytest.raises(InterpolationError, match=r"binary is not UTF-8"):
        replaced("${file:binary}", tmp_path)
