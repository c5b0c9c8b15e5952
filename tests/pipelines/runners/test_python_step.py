"""PYTHON: code in a definition, its variables, and what it may not do."""

import logging
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from outcomes import result_of

import pipelines
from pipelines import BoundingBox, ByteBuffer, Data, Image, Point, Python, PythonConfig, Sequence, StepError, ValueType
from pipelines.data.batch import Batch
from pipelines.errors import DefinitionError

BOX = {"cx": 0.5, "cy": 0.5, "height": 0.2, "width": 0.4, "label": "cat", "probability": 0.9}
IO_INPUT = {
    "input": {"python_type": "numpy.ndarray", "type": "NDARRAY"},
    "l": {"python_type": "list", "secondary_type": "INT64", "type": "LIST"},
}
CAT = BoundingBox.center(0.5, 0.5, 0.2, 0.4, "cat", 0.9)


def step(code: str | None = None, outputs: dict[str, Any] | None = None, **fields: Any) -> Python:
    return Python(python_config=PythonConfig(python_code=code, io_outputs=outputs, **fields))


def run(code: str, given: dict[str, Any], outputs: dict[str, Any] | None = None, **fields: Any) -> Data:
    with Sequence([step(code, outputs, **fields)]).open() as executor:
        found = executor.run(Data(given))
    assert isinstance(found, Data)
    return found


def output(code: str, **io: Any) -> Any:
    return run(code, {}, {"y": io})["y"]


def failure(code: str, outputs: dict[str, Any] | None = None, **given: Any) -> str:
    with pytest.raises(StepError) as caught:
        run(code, given, outputs)
    assert caught.value.step == "0:PYTHON"
    return str(caught.value.__cause__)


def unopened(made: Python, **options: Any) -> str:
    with pytest.raises(StepError) as caught:
        Sequence([made]).open(**options)
    return str(caught.value.__cause__)


def test_the_definition_of_konduits_documentation_runs(tmp_path: Path) -> None:
    (tmp_path / "init_script.py").write_text("def add(a, b):\n    return a + b\n")
    (tmp_path / "run_script.py").write_text("c = add(a, b)\n")
    text = """
steps:
- '@type': "PYTHON"
  python_config:
    import_code_path: "init_script.py"
    python_code_path: "run_script.py"
    io_inputs: {a: {python_type: "float", type: "DOUBLE"}, b: {python_type: "float", type: "DOUBLE"}}
    io_outputs: {c: {python_type: "float", secondary_type: "NONE", type: "DOUBLE"}}
    python_config_type: "CONDA"
    python_path: "1"
"""
    with pipelines.loads(text, base=tmp_path).open() as executor:
        assert executor.run(Data({"a": 1.5, "b": 2.0})) == Data({"c": 3.5})


def test_konduits_own_sample_runs() -> None:
    sample = {"input": np.array([1.0, 2.0], "f4"), "l": [1, 2]}
    found = run(
        "output = input + 1",
        sample,
        {"output": {"python_type": "numpy.ndarray", "type": "NDARRAY"}},
        io_inputs=IO_INPUT,
    )
    assert list(found) == ["output"]
    assert found["output"].tolist() == [2.0, 3.0]
    assert found["output"].dtype == np.float32


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("text", "'text'"),
        (7, "7"),
        (1.5, "1.5"),
        (True, "True"),
        (b"\x00\x01", r"b'\x00\x01'"),
        (ByteBuffer(b"ab"), "b'ab'"),
        (np.array([1, 2], "i4"), "array([1, 2], dtype=int32)"),
        ([1, 2], "[1, 2]"),
        ([Point([1, 2], "a")], "[{'x': 1.0, 'y': 2.0, 'label': 'a', 'dimensions': 2}]"),
        (Data({"a": 1}), """'{"a":1}'"""),
        (Point([1, 2, 3, 4], "nose", 0.5), "{'x': 1.0, 'y': 2.0, 'label': 'nose', 'z': 3.0, 'dimensions': 4}"),
        (
            BoundingBox.corners(0, 4, 0, 2, "cat", 0.5),
            "{'cx': 2.0, 'cy': 1.0, 'width': 4.0, 'height': 2.0, 'label': 'cat', 'probability': 0.5, "
            "'x1': 0.0, 'x2': 4.0, 'y1': 0.0, 'y2': 2.0}",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_is_the_variable_that_konduit_makes_of_it(value: Any, seen: str) -> None:
    ways: list[dict[str, Any] | None] = [None, {"x": {}}]
    for inputs in ways:
        assert run("y = repr(x)", {"x": value}, {"y": {"python_type": "str"}}, io_inputs=inputs)["y"] == seen


def test_an_image_is_the_bytes_of_its_file_or_of_a_png() -> None:
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    jpeg = Image(Image(pixels).get_as("jpeg"))
    assert run("y = x", {"x": jpeg}, {"y": {"python_type": "bytes"}})["y"] == jpeg.encoded
    assert run("y = x", {"x": Image(pixels)}, {"y": {"python_type": "bytes", "type": "IMAGE"}})["y"] == Image(pixels)


@pytest.mark.parametrize(
    ("code", "io", "value"),
    [
        ("y = 1 > 0", {"python_type": "bool", "type": "BOOLEAN"}, True),
        ("import numpy\ny = numpy.bool_(False)", {"python_type": "bool"}, False),
        ("y = 3", {"python_type": "int", "type": "INT64"}, 3),
        ("import numpy\ny = numpy.arange(4).sum()", {"python_type": "int"}, 6),
        ("y = 3", {"python_type": "float", "type": "DOUBLE"}, 3.0),
        ("import numpy\ny = numpy.asarray(2.5)", {"python_type": "float"}, 2.5),
        ("y = 'a'", {"python_type": "str", "type": "STRING"}, "a"),
        ("y = b'a'", {"python_type": "bytes", "type": "BYTES"}, b"a"),
        ("y = bytearray(b'a')", {"python_type": "bytes"}, b"a"),
        ("y = b'a'", {"python_type": "bytes", "type": "BYTEBUFFER"}, ByteBuffer(b"a")),
        ("y = 'ä'.encode()", {"python_type": "bytes", "type": "STRING"}, "ä"),
        ("y = [1, 2]", {"python_type": "list", "type": "LIST", "secondary_type": "INT64"}, [1, 2]),
        ("y = (1, 2)", {"python_type": "list", "type": "LIST", "secondary_type": "DOUBLE"}, [1.0, 2.0]),
        ("y = ['a']", {"python_type": "list"}, ["a"]),
        ("y = [[1], [2]]", {"python_type": "list", "type": "LIST", "secondary_type": "LIST"}, [[1], [2]]),
        ("y = {'a': [1.5]}", {"python_type": "dict"}, Data({"a": [1.5]})),
        ("y = {'a': {'b': 1}}", {"python_type": "dict", "type": "DATA"}, Data({"a": Data({"b": 1})})),
        ("y = {'x': 1, 'y': 2, 'z': 3}", {"python_type": "dict", "type": "POINT"}, Point([1, 2, 3], "", 0.0)),
        ("y = {'x': 1, 'y': 2, 'label': 'a'}", {"python_type": "dict", "type": "POINT"}, Point([1, 2], "a", 0.0)),
        (f"y = {BOX}", {"python_type": "dict", "type": "BOUNDING_BOX"}, CAT),
        (
            "y = {'x1': 0, 'x2': 4, 'y1': 0, 'y2': 2}",
            {"python_type": "dict", "type": "BOUNDING_BOX"},
            BoundingBox.corners(0, 4, 0, 2),
        ),
        ("y = 3", {}, 3),
    ],
)
def test_an_output_is_what_its_types_say(code: str, io: dict[str, Any], value: Any) -> None:
    found = output(code, **io)
    assert found == value
    assert type(found) is type(value)


def test_lists_of_boxes_and_points_are_made_of_dicts() -> None:
    boxes = output(f"y = [{BOX}, {BOX}]", python_type="list", type="LIST", secondary_type="BOUNDING_BOX")
    assert boxes == [CAT, CAT]
    points = output("y = [{'x': 1, 'y': 2}]", python_type="list", type="LIST", secondary_type="POINT")
    assert points == [Point([1, 2], "", 0.0)]


def test_boxes_and_points_go_through_the_code_unharmed() -> None:
    given = {"b": BoundingBox.corners(0.1, 0.5, 0.2, 0.4), "p": [Point([1, 2]), Point([3, 4], "a")]}
    outputs = {
        "b": {"python_type": "dict", "type": "BOUNDING_BOX"},
        "p": {"python_type": "list", "type": "LIST", "secondary_type": "POINT"},
    }
    found = run("pass", given, outputs)
    assert found["b"] == given["b"]
    assert [(one.coords, one.label) for one in found["p"]] == [((1.0, 2.0), None), ((3.0, 4.0), "a")]


def test_an_empty_list_keeps_the_type_of_its_elements() -> None:
    found = run("y = []", {}, {"y": {"python_type": "list", "type": "LIST", "secondary_type": "BOUNDING_BOX"}})
    assert found.list_type("y") is ValueType.BOUNDING_BOX


def test_the_result_has_the_outputs_only_and_the_metadata() -> None:
    with Sequence([step("y = x", {"y": {"python_type": "int"}})]).open() as executor:
        found = executor.run(Data({"x": 1, "z": 2}, metadata={"from": "here"}))
    assert isinstance(found, Data)
    assert dict(found) == {"y": 1}
    assert found.metadata == Data({"from": "here"})


def test_without_outputs_the_result_is_empty() -> None:
    assert run("pass", {"x": 1}) == Data()


@pytest.mark.parametrize(
    ("code", "io", "said"),
    [
        ("pass", {"python_type": "int"}, ['no variable "y"', "ioOutputs"]),
        ("y = 'a'", {"python_type": "int"}, ['"y"', "an int", "a str"]),
        ("y = 1.5", {"python_type": "int"}, ['"y"', "an int", "a float"]),
        ("y = None", {"python_type": "str"}, ['"y"', "a str", "None"]),
        ("y = [1]", {"python_type": "numpy.ndarray"}, ['"y"', "a numpy.ndarray", "a list"]),
        ("y = 1", {"python_type": "list", "secondary_type": "INT64"}, ['"y"', "a list", "a int"]),
        ("y = [1, 'a']", {"python_type": "list", "secondary_type": "INT64"}, ['"y"', "element 1", "an int", "a str"]),
        ("y = [1, 'a']", {"python_type": "list"}, ['"y"', "elements of one type", "INT64", "STRING"]),
        ("y = object()", {}, ['"y"', "object"]),
        ("y = {1: 2}", {"python_type": "dict"}, ['"y"', "key"]),
        ("y = {'x': 1}", {"python_type": "dict", "type": "POINT"}, ['"y"', 'a point needs "y"', "only x"]),
        ("y = {'cx': 'a'}", {"python_type": "dict", "type": "BOUNDING_BOX"}, ['"y"', '"cx" must be a float', "a str"]),
        ("y = b'a'", {"python_type": "bytes", "type": "IMAGE"}, ['"y"', "not a PNG"]),
        ("y = b'\\xff'", {"python_type": "bytes", "type": "STRING"}, ['"y"', "UTF-8"]),
        ("y = 2 ** 70", {"python_type": "int"}, ['"y"', "64 bits"]),
        ("y = 10 ** 400", {"python_type": "float"}, ['"y"', "OverflowError"]),
        ("y = {}\ny['y'] = y", {"python_type": "dict"}, ['"y"', "RecursionError"]),
        ("import numpy\ny = numpy.array(['a'])", {"python_type": "numpy.ndarray"}, ['"y"', "list of strings"]),
    ],
)
def test_a_wrong_output_is_told_with_its_name_the_needed_type_and_its_own(
    code: str, io: dict[str, Any], said: list[str]
) -> None:
    message = failure(code, {"y": io})
    assert all(word in message for word in said), message


def test_a_record_that_fails_harms_no_other() -> None:
    with Sequence([step("y = 1 // x", {"y": {"python_type": "int"}})]).open() as executor:
        first, second, third = executor.run_many([Data({"x": 1}), Data({"x": 0}), Data({"x": -1})])
    assert (first, third) == (Data({"y": 1}), Data({"y": -1}))
    assert isinstance(second, StepError)
    assert "ZeroDivisionError" in str(second)


def test_an_error_names_file_and_line_of_the_code(tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text("a = 1\nb = missing\n")
    made = step(python_code_path="run.py")
    with Sequence([made], base=tmp_path).open() as executor, pytest.raises(StepError) as caught:
        executor.run(Data())
    assert f"{tmp_path / 'run.py'}:2: NameError: name 'missing' is not defined" in str(caught.value)
    assert "<0:PYTHON pythonCode>:3: ValueError: no" in failure("x = 1\n\nraise ValueError('no')")


def test_the_line_named_is_in_the_users_code_not_in_a_library() -> None:
    code = "import json\njson.loads('{')"
    assert failure(code).startswith("<0:PYTHON pythonCode>:2: JSONDecodeError")


def test_a_declared_input_that_the_record_lacks_is_told() -> None:
    with Sequence([step("y = x", io_inputs={"x": {}})]).open() as executor:
        (failed,) = executor.run_many([Data({"z": 1})])
    assert "name 'x' is not defined; the record has no such value, which ioInputs names" in str(failed)


def test_a_traceback_shows_the_line_of_code_in_the_definition() -> None:
    with Sequence([step("value = 1\nvalue / 0")]).open() as executor:
        (failed,) = executor.run_many([Data()])
        assert isinstance(failed, StepError)
        assert "value / 0" in "".join(traceback.format_exception(failed))


def test_imports_run_once_and_state_survives_from_record_to_record() -> None:
    made = step("count += 1\ny = count", {"y": {"python_type": "int"}}, import_code="count = 0")
    with Sequence([made]).open() as executor:
        assert [result_of(executor.run(Data()))["y"] for _ in range(3)] == [1, 2, 3]
    with Sequence([made, made]).open() as executor:
        assert executor.run(Data()) == Data({"y": 1})  # a namespace for each step


@pytest.mark.parametrize(
    "code",
    [
        "try:\n    count += 1\nexcept NameError:\n    count = 1",
        "if 'count' not in globals():\n    count = 0\ncount += 1",
        "if 'seen' not in locals():\n    seen = []\nseen.append(1)\ncount = len(seen)",
        "try:\n    seen\nexcept NameError:\n    seen = 0\nseen += 1\ncount = seen",
        "def add():\n    global count\n    count = globals().get('count', 0) + 1\nadd()",
    ],
)
def test_variables_that_the_code_assigns_survive_without_import_code_too(code: str) -> None:
    with Sequence([step(code, {"count": {"python_type": "int"}})]).open() as executor:
        assert [result_of(executor.run(Data()))["count"] for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize(
    "code",
    [
        "if x > 0:\n    y = x",
        "if x > 0:\n    y = x\n    print(end=str(y)[:0])",
        "def f():\n    global y\n    y = x\nif x > 0:\n    f()",
        "y = x\nif x < 0:\n    del y",
    ],
)
def test_an_output_is_never_what_an_earlier_record_left(code: str) -> None:
    with Sequence([step(code, {"y": {"python_type": "int"}})]).open() as executor:
        first, failed, second = executor.run_many([Data({"x": x}) for x in (1, -1, 1)])
    assert first == second == Data({"y": 1})
    assert 'no variable "y" for this record' in str(failed)


def test_an_output_that_is_not_set_is_what_the_import_code_made_it() -> None:
    made = step("if x > 0:\n    y = 'pos'", {"y": {"python_type": "str"}}, import_code="y = 'none'")
    with Sequence([made]).open() as executor:
        found = executor.run_many([Data({"x": x}) for x in (-1, 1, -1)])
    assert found == [Data({"y": "none"}), Data({"y": "pos"}), Data({"y": "none"})]


def test_state_of_the_import_code_is_an_output_also_where_a_record_does_not_change_it() -> None:
    made = step("if x > 0:\n    count += 1", {"count": {"python_type": "int"}}, import_code="count = 0")
    with Sequence([made]).open() as executor:
        found = executor.run_many([Data({"x": x}) for x in (1, -1, 1)])
    assert found == [Data({"count": 1}), Data({"count": 1}), Data({"count": 2})]


def test_an_output_may_have_the_name_of_a_function_of_python() -> None:
    with Sequence([step("sum = sum([x, 1])", {"sum": {"python_type": "int"}})]).open() as executor:
        assert executor.run_many([Data({"x": 1}), Data({"x": 2})]) == [Data({"sum": 2}), Data({"sum": 3})]


def test_code_that_exits_ends_its_record_and_no_service() -> None:
    with Sequence([step("import sys\nif x == 2:\n    sys.exit(3)")]).open() as executor:
        first, second, third = executor.run_many([Data({"x": x}) for x in (1, 2, 3)])
    assert (first, third) == (Data(), Data())
    assert "<0:PYTHON pythonCode>:3: SystemExit: 3" in str(second)
    assert "importCode>:1: SystemExit" in unopened(step("pass", import_code="exit(1)"))


def test_functions_of_the_import_code_see_the_variables_of_the_record() -> None:
    found = run("y = f()", {"x": 2}, {"y": {"python_type": "int"}}, import_code="def f():\n    return x + 1")
    assert found["y"] == 3


def test_no_value_of_a_record_is_left_for_the_next() -> None:
    code = "y = globals().get('x', 'nothing')"
    with Sequence([step(code, {"y": {"python_type": "str"}}, io_inputs={"x": {}})]).open() as executor:
        found = executor.run_many([Data({"x": "mine"}), Data(), Data({"x": "other"})])
    assert found == [Data({"y": "mine"}), Data({"y": "nothing"}), Data({"y": "other"})]


def test_a_variable_of_the_import_code_is_the_default_of_an_input() -> None:
    made = step("y = x", {"y": {"python_type": "int"}}, import_code="x = 5", io_inputs={"x": {"type": "INT64"}})
    with Sequence([made]).open() as executor:
        assert executor.run_many([Data({"x": 1}), Data()]) == [Data({"y": 1}), Data({"y": 5})]


@pytest.mark.parametrize("name", ["len", "json", "f", "state", "__builtins__", "__name__", "y", "class", "a b"])
def test_a_record_replaces_nothing_that_the_code_calls_by_a_name(name: str) -> None:
    code = "state = globals().get('state', 0) + 1\ny = f(json.dumps(list(range(len('abc'))))) + __name__ + str(state)\n"
    made = step(code, {"y": {"python_type": "str"}}, import_code="import json\ndef f(text):\n    return text")
    with Sequence([made]).open() as executor:
        found = [executor.run(Data({name: "harm"})) for _ in range(2)]
    assert found == [Data({"y": "[0, 1, 2]__main__1"}), Data({"y": "[0, 1, 2]__main__2"})]


def test_a_declared_input_may_have_any_name() -> None:
    outputs = {"id": {"python_type": "int"}}
    found = run("id = globals()['a b'] + id", {"a b": 1, "id": 2}, outputs, io_inputs={"a b": {}, "id": {}})
    assert found["id"] == 3


def test_code_in_a_record_is_text() -> None:
    assert run("y = x", {"x": "__import__('os').abort()"}, {"y": {"python_type": "str"}})["y"].startswith("__import__")


def test_the_code_may_write_to_its_arrays_and_harms_no_other_step() -> None:
    given = np.zeros(3, "f4")
    made = step("x += 1\nx[0] = 9\ny = x", {"y": {"python_type": "numpy.ndarray"}}, io_inputs={"x": {}})
    with Sequence([made]).open() as executor:
        result = executor.run_batch(Batch.of([Data({"x": given}), Data({"x": given})]))
    assert [one["y"].tolist() for one in result.batch.to_list()] == [[9, 1, 1]] * 2
    assert given.tolist() == [0, 0, 0]


def test_a_result_does_not_change_when_the_code_writes_to_its_variable_later() -> None:
    outputs = {
        "a": {"python_type": "numpy.ndarray"},
        "l": {"python_type": "list"},
        "d": {"python_type": "dict", "type": "DATA"},
    }
    code = "a += 1\nl.append(1)\nd['n'][0] += 1"
    imports = "import numpy\na = numpy.zeros(1)\nl = [1]\nd = {'n': numpy.zeros(1)}"
    with Sequence([step(code, outputs, import_code=imports)]).open() as executor:
        first = executor.run(Data())
        executor.run(Data())
    assert isinstance(first, Data)
    assert first == Data({"a": np.ones(1), "l": [1, 1], "d": Data({"n": np.ones(1)})})


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (Python(), ["pythonConfig", "pythonCode"]),
        (step(), ['"pythonCode" or "pythonCodePath"']),
        (step("y ="), ["<0:PYTHON pythonCode>:1: SyntaxError"]),
        (step("pass", import_code="import no_such_module_here"), ["importCode>:1: ModuleNotFoundError"]),
        (step(python_code_path="nowhere.py"), ["pythonCodePath", "nowhere.py", "cannot be read"]),
        (step("pass", {"y": {"python_type": "bytes", "type": "INT64"}}), ['"y" of type bytes', "INT64", "IMAGE"]),
        (step("pass", {"y": {"python_type": "list", "type": "DATA"}}), ['"y" of type list', "LIST"]),
    ],
)
def test_a_python_step_that_cannot_run_is_told_when_it_opens(made: Python, said: list[str]) -> None:
    message = unopened(made)
    assert all(word in message for word in said), message


def test_an_unknown_type_is_an_error_of_the_definition() -> None:
    text = '{"steps": [{"@type": "PYTHON", "pythonConfig": {"ioOutputs": {"y": {"pythonType": "tuple"}}}}]}'
    with pytest.raises(DefinitionError, match=r"pythonConfig.ioOutputs.y.pythonType: must be 'bool'.*not 'tuple'"):
        pipelines.loads(text)


def test_code_is_refused_where_it_is_not_allowed() -> None:
    assert "not allowed" in unopened(step("pass"), allow_code=False)


def test_python_settings_without_effect_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pipelines.python")
    conda: dict[str, Any] = {"python_config_type": "CONDA", "environment_name": "base", "python_path": "1"}
    with Sequence([step("pass", **conda)]).open() as executor:
        executor.run_many([Data(), Data()])
    (line,) = caplog.messages
    assert line.startswith("0:PYTHON: pythonConfigType, pythonPath, environmentName without effect")
    caplog.clear()
    with Sequence([step("pass")]).open():
        assert not caplog.messages
