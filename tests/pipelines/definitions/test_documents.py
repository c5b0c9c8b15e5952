"""JSON and YAML text as plain data with lines."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import pipelines
from pipelines.definitions.document import FileLimits, path_text
from pipelines.definitions.documents import parse_document, parse_documents, read_document, read_documents
from pipelines.definitions.yamlwriter import write_yaml
from pipelines.errors import DefinitionError


def failure(text: str | bytes, limits: FileLimits | None = None) -> str:
    with pytest.raises(DefinitionError) as caught:
        parse_document(text, "a.yaml", limits or FileLimits())
    return str(caught.value)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(), inside, max_size=4),
    max_leaves=20,
)


@settings(deadline=None)
@given(plain)
def test_json_text_reads_as_the_standard_library_reads_it(value: object) -> None:
    for indent in (None, 2):
        assert parse_document(json.dumps([value], indent=indent)).data == [value]


@settings(deadline=None)
@given(st.dictionaries(st.text(), plain, min_size=1, max_size=4))
def test_yaml_that_we_write_reads_back_equal(value: object) -> None:
    assert parse_document(write_yaml(value)).data == value


@pytest.mark.parametrize(
    "text",
    [
        '{\n  "steps": [\n    {\n      "@type": "ONNX"\n    }\n  ]\n}',
        "steps:\n\n- a: 1\n  '@type': ONNX",
    ],
)
def test_every_value_knows_its_line(text: str) -> None:
    assert parse_document(text, "a").where(("steps", 0, "@type")) == "a:4: steps[0].@type: "


def test_the_line_of_something_absent_is_that_of_the_nearest_around_it() -> None:
    document = parse_document("a:\n  b:\n    c: 1", "f.yaml")

    assert document.where(("a", "b", "d")) == "f.yaml:2: a.b.d: "


def test_a_part_of_a_document_names_the_whole_path() -> None:
    part = parse_document("name: x\npipeline:\n  steps:\n  - a: 1", "f.yaml").at("pipeline")

    assert part.data == {"steps": [{"a": 1}]}
    assert str(part.error(("steps", 0, "a"), "is bad")) == "f.yaml:4: pipeline.steps[0].a: is bad"
    assert str(part.at("steps", 0).error((), "is bad")) == "f.yaml:4: pipeline.steps[0]: is bad"


def test_paths_with_odd_keys_are_quoted() -> None:
    assert path_text(("a", 0, "b.c", "@type", "x]y")) == 'a[0].b.c.@type["x]y"]'


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("off", "off"),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("007", "007"),
        ("1_000", "1_000"),
        ("1.2.3", "1.2.3"),
        ("-x", "-x"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("12", 12),
        ("-0", 0),
        ("0x1F", 31),
        ("0o17", 15),
        ("1e3", 1000.0),
        ("-.5", -0.5),
        ("-.inf", float("-inf")),
        ("'12'", "12"),
        ('"true"', "true"),
        ("!!str 12", "12"),
        ("!!float 12", 12.0),
        ("|\n  a\n  b\n", "a\nb\n"),
    ],
)
def test_plain_scalars_follow_yaml_1_2_but_keep_leading_zeros(text: str, value: object) -> None:
    found = parse_document(f"k: {text}").data["k"]

    assert found == value
    assert type(found) is type(value)


def test_keys_are_strings_whatever_they_look_like() -> None:
    assert parse_document("0: a\ntrue: b\nnull: c\n2024-01-01: d").data == {
        "0": "a",
        "true": "b",
        "null": "c",
        "2024-01-01": "d",
    }


def test_aliases_are_copies_and_merge_keys_yield_to_keys_that_are_there() -> None:
    document = parse_document("a: &x {p: 1, q: [1]}\nb: *x\nc:\n  <<: *x\n  p: 2\nd:\n  <<: [{r: 1}, {r: 2, s: 3}]")

    assert document.data["b"] == document.data["a"]
    assert document.data["b"]["q"] is not document.data["a"]["q"]
    assert document.data["c"] == {"p": 2, "q": [1]}
    assert document.data["d"] == {"r": 1, "s": 3}
    assert document.line(("b", "q")) == 1
    assert document.line(("c", "p")) == 5


def test_a_file_may_hold_several_yaml_documents(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("---\na: 1\n---\n---\nb: 2\n")

    found = read_documents(path)

    assert [document.data for document in found] == [{"a": 1}, {"b": 2}]
    assert found[1].line(("b",)) == 5
    with pytest.raises(DefinitionError, match="only one is expected"):
        read_document(path)


def test_an_anchor_ends_with_its_document() -> None:
    with pytest.raises(DefinitionError, match=r"\*x stands for nothing"):
        parse_documents("a: &x 1\n---\nb: *x")


def test_flow_style_yaml_is_read_though_it_begins_like_json() -> None:
    assert parse_document("{steps: [], id: x}  # a comment").data == {"steps": [], "id": "x"}


def test_a_byte_order_mark_is_skipped() -> None:
    assert parse_document(b'\xef\xbb\xbf{"a": 1}').data == {"a": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "a.yaml:3: a: is given twice, first in line 1"),
        ('{"a": 1,\n "b": {"c": 1,\n "c": 2}}', "a.yaml:3: b.c: is given twice, first in line 2"),
        ('{"a": 1\n "b": 2}', 'a.yaml:2: not valid JSON: "," or "}" is needed (column 2)'),
        ('{"a" 1}', 'a.yaml:1: not valid JSON: a ":" is needed after the key (column 6)'),
        ('{"a": [1, 2}', 'a.yaml:1: not valid JSON: "," or "]" is needed (column 12)'),
        ('{"a": 1}\n{"b": 2}', "a.yaml:2: not valid JSON: something follows the end of the JSON value (column 1)"),
        ("a: 1\n  b: 2", "a.yaml:2: not valid YAML: mapping values are not allowed"),
        ("\ta: 1", "a.yaml:1: not valid YAML: "),
        ("a: 1\r\r  b: 2", "a.yaml:3: not valid YAML: mapping values are not allowed"),
        ('a: {b: "c}', "a.yaml:1: not valid YAML: while scanning a quoted scalar"),
        ("a: *b", "a.yaml:1: a: *b stands for nothing: no &b was completed before"),
        ("a: &b [1, *b]", "a.yaml:1: a[1]: *b stands for nothing"),
        ("a: !!python/object/apply:os.system [ls]", "a.yaml:1: a: the tag tag:yaml.org,2002:python/object/apply"),
        ("- !<ONNX> {}", "a.yaml:1: [0]: the tag ONNX is not read"),
        ("a: !!int x", "a.yaml:1: a: 'x' is not of the type of its tag"),
        ("? [a]\n: 1", "a.yaml:1: a key must be a single word or text"),
        ("a:\n  <<: 5", "a.yaml:2: a.<<: only mappings can be merged in"),
        ("", "a.yaml: is empty"),
        ("# nothing\n", "a.yaml: is empty"),
        (b"a: 1\nb: \xff", "a.yaml:2: is not UTF-8 text"),
        ("a: \x00", "a.yaml: not valid YAML: "),
        ("a: \ud800", "a.yaml: not valid YAML: "),
    ],
)
def test_a_mistake_in_json_or_yaml_text_is_told_with_file_and_line(text: str | bytes, message: str) -> None:
    assert failure(text).startswith(message)


def test_a_model_in_place_of_a_pipeline_is_named_as_one(tmp_path: Path) -> None:
    file = tmp_path / "fans.onnx"
    file.write_bytes(b"\x08\x0a\xff\xfe")
    with pytest.raises(DefinitionError, match=r"fans\.onnx:\d: is not UTF-8 text .* it is a model: a step names it"):
        pipelines.load(file)


@pytest.mark.parametrize("loader", ["CSafeLoader", "SafeLoader"])
@pytest.mark.parametrize(("text", "line"), [("\ta: 1", 1), ("a:\n\tb: 1\n", 2), ("a:\n  b: 1\n \tc: 1\n", 3)])
def test_a_tab_that_indents_is_named(text: str, line: int, loader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.definitions.yamlreader._LOADER", getattr(yaml, loader, yaml.SafeLoader))
    found = failure(text)
    assert found.startswith(f"a.yaml:{line}: not valid YAML: ")
    assert found.endswith("; YAML is indented by spaces, and here is a tab")


@pytest.mark.parametrize("loader", ["CSafeLoader", "SafeLoader"])
@pytest.mark.parametrize(
    ("text", "line"), [("a: {@type: ONNX}", 1), ("a:\n  - @type: ONNX\n", 2), ("a: 1\n@type: X\n", 2)]
)
def test_a_key_that_begins_with_an_at_sign_is_told_to_stand_in_quotation_marks(
    text: str, line: int, loader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.definitions.yamlreader._LOADER", getattr(yaml, loader, yaml.SafeLoader))
    found = failure(text)
    assert found.startswith(f"a.yaml:{line}: not valid YAML: ")
    assert found.endswith('; a key that begins with @ stands in quotation marks: "@type"')


def test_pyyaml_without_libyaml_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a: &x {p: 1, q: ['1', \"2\", 3]}\nb:\n  <<: *x\n  p: |\n    text\n---\n!!str 5\n"
    found = parse_documents(text)

    monkeypatch.setattr("pipelines.definitions.yamlreader._LOADER", yaml.SafeLoader)

    assert parse_documents(text) == found
    assert found[0].data["b"] == {"p": "text\n", "q": ["1", "2", 3]}
    assert failure("a: 1\n  b: 2").startswith("a.yaml:2: not valid YAML: mapping values are not allowed")
    assert "nested more than 64 deep" in failure("[" * 100_000)


def test_an_alias_bomb_is_refused_before_it_is_expanded() -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]

    assert failure("\n".join(lines), FileLimits(values=2000)).endswith("holds more than 2000 values, aliases expanded")


def test_depth_is_bounded_also_through_aliases() -> None:
    chain = ["a0: &a0 [1]", *(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 80))]

    assert "nested more than 64 deep" in failure("\n".join(chain))
    assert "nested more than 64 deep" in failure("[" * 100_000)
    assert "nested more than 64 deep" in failure('{"a":' * 100_000)
    assert parse_document("[" * 60 + "]" * 60).data


def test_a_large_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: " + "x" * 100)

    with pytest.raises(DefinitionError, match="larger than 50 bytes"):
        read_document(path, FileLimits(bytes=50))


def test_a_file_that_is_not_there_is_answered_with_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "digits.pipeline.yaml").write_text("a: 1")

    with pytest.raises(DefinitionError, match=r'no such file; did you mean "digits\.pipeline\.yaml"\?'):
        read_document(tmp_path / "digit.pipeline.yml")


def test_a_folder_is_answered_with_the_files_in_it(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"is a folder; name a file$"):
        read_document(tmp_path)
    (tmp_path / "digits.yaml").write_text("a: 1")
    with pytest.raises(DefinitionError, match=r"is a folder; name a file, such as .*digits\.yaml$"):
        read_document(tmp_path)


@pytest.mark.parametrize(
    "number", ["0x" + "f" * 5000, "0o" + "7" * 5000, "9" * 5000, "-" + "9" * 5000, "1" * 5000 + ".5"], ids=len
)
@pytest.mark.parametrize("form", ["a:\n  b: {}", "a:\n  b: [1, {}]", '{{"a":\n{}}}'])
def test_a_number_of_thousands_of_digits_is_refused_with_its_line(form: str, number: str) -> None:
    # In JSON there are no hexadecimal numbers at all.
    said = "not valid JSON" if number[0] == "0" and form[0] == "{" else "characters; put it in quotes"
    with pytest.raises(DefinitionError, match=rf"f\.yaml:2: .*{said}"):
        parse_document(form.format(number), "f.yaml")
    assert parse_document(form.format(f'"{number}"')).data


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1" + "0" * 400 + ".0", "1e99999999999"])
@pytest.mark.parametrize("form", ["a:\n  {}", '{{"a":\n{}}}'])
def test_a_number_beyond_the_largest_is_refused(form: str, number: str) -> None:
    with pytest.raises(DefinitionError, match=r"f\.yaml:2: .*beyond the largest number"):
        parse_document(form.format(number), "f.yaml")


@pytest.mark.parametrize("constant", ["Infinity", "-Infinity", "NaN"])
def test_nan_and_infinity_are_refused_in_json_and_not_taken_for_yaml_texts(constant: str) -> None:
    with pytest.raises(DefinitionError, match=r"f\.json:2: .* is not a JSON number"):
        parse_document('{"a":\n' + constant + "}", "f.json")
    # YAML begins with a brace too, and words may begin like a number.
    assert parse_document('{"a": Infinity War, b: 1}').data == {"a": "Infinity War", "b": 1}


def test_yaml_has_its_own_words_for_nan_and_infinity() -> None:
    assert parse_document("[.inf, -.inf, 1.7e308]").data == [math.inf, -math.inf, 1.7e308]
    with pytest.raises(DefinitionError, match="beyond the largest number"):
        parse_document("!!float 1" + "0" * 400)


@pytest.mark.slow
def test_anchors_inside_each_other_cost_no_more_than_lists() -> None:
    inner = "[" + ",".join(["1"] * 60_000) + "]"

    def seconds(*around: str) -> float:
        text = "x: " + "".join(around) + inner + "]" * len(around)
        began = time.process_time()
        parse_document(text)
        return time.process_time() - began

    plain = seconds(*["["] * 60)
    assert seconds(*(f"[&a{level} " for level in range(60))) < 5 * plain


def test_limits_count_values_behind_yaml_aliases_too() -> None:
    limits = FileLimits(values=30, depth=6)
    text = "a: &a [1, 2]\nb: &b {{x: *a, y: *a}}\nc: {}"
    # The mapping, a list of three, a mapping of two lists.
    assert parse_document(text.format("[*b, *b]"), limits=limits).data["c"] == [{"x": [1, 2], "y": [1, 2]}] * 2
    with pytest.raises(DefinitionError, match="more than 30 values"):
        parse_document(text.format("[*b, *b, *b]"), limits=limits)
    with pytest.raises(DefinitionError, match="nested more than 6 deep"):
        parse_document(text.format("[[[*b]]]"), limits=limits)
    assert parse_document(text.format("[[*b]]"), limits=limits).data
