"""Which texts are expressions: whatever sees more than one record, or may take long, is refused with what to write."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from pipelines.errors import DefinitionError
from pipelines.expressions.expression import Expression
from pipelines.expressions.language import bare_name, check_language


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("sum(x)", "sum(...): an expression sees one record at a time"),
        ("count(*)", "count(...): an expression sees one record"),
        ("sum(x) over (partition by y)", "sum(...): an expression sees one record"),
        ("row_number() over ()", "row_number(...): an expression sees one record"),
        ("x over w", "over: an expression sees one record"),
        ("unnest(tags)", "unnest(...): an expression sees one record"),
        ("columns('a')", "columns(...): an expression sees one record"),
        ("x = any(y)", "any(...): an expression sees one record"),
        ("(select 1)", "select: an expression sees one record"),
        ("x in (select y)", "select: an expression sees one record"),
        ("exists (select 1)", "exists(...): an expression sees one record"),
        ("read_csv('/etc/passwd')", "read_csv(...): no such function"),
        ("losser(room)", 'losser(...): no such function; did you mean "LOWER"?'),
        ("cast(x as double)", "cast(...): write TRY_CAST(x AS TYPE)"),
        ("x::double", ":: (character 2): write TRY_CAST(x AS TYPE)"),
        ("strptime(x, '%Y')", "strptime(...): a text cannot be read as a time"),
        ("now() > x", "now(...): it would be the time at which the expression was read; that of the record is into:"),
        ("current_timestamp", "current_timestamp: it would be the time"),
        ("lpad(x, 1000000000)", "lpad(...): it could make texts of any length"),
        ("rpad(x, 9)", "rpad(...): it could make"),
        ("repeat(x, 9)", "repeat(...): it could make"),
        ("a // b", "// (character 3): write FLOOR(a / b)"),
        ("a ^ 2", "^ (character 3): write POWER(x, y)"),
        ("a.b > 1", '. (character 2): a key with dots is written in double quotes, "a.b"'),
        ("tags[1]", "[ (character 5): of an element of a list the codec makes a value"),
        ("`my key`", '` (character 1): a key is written in double quotes, "my key"'),
        ("room = 'it's'", "put a blank or an operator between 'it' and s"),
        ("room = 'hall", "' (character 8): the text does not end"),
        ('"room = 1', '" (character 1): the key does not end'),
        ("a -- b", "-- (character 3): a comment is not part"),
        ("a /* b */", "/* (character 3): a comment is not part"),
        ("a; b", "; (character 2): it has no meaning"),
        ("a\x00", "U+0000 (character 2): it has no meaning"),
        ("x'ff'", "x'ff': put a blank or an operator between x and 'ff'"),
        ("1_000", "1_000: put a blank or an operator between 1 and _000"),
        ("date '2026-01-01'", "date '2026-01-01': write times as numbers"),
        ("interval '1 day'", "interval '1 day': write times as numbers"),
        ("  ", "the expression is empty"),
        ("(" * 5_000 + "a" + ")" * 5_000, "the expression has 10001 characters"),
        ("(" * 4_000 + "a" + ")" * 4_000, "the expression has 4000 operators and calls"),
        ("(" * 11 + "a" + ")" * 11, "more than 10 brackets and CASEs inside each other"),
        ("nullif(" * 10 + "a" + ",1)" * 10, "nested too deeply"),
        (" || ".join(["a"] * 1_000), "the expression has 999 operators"),
        ("a" * 10_001, "more than 10000 are refused"),
    ],
    ids=lambda text: text[:30],
)
def test_what_is_refused_says_why_and_what_to_write(text: str, why: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(why)):
        check_language(text)
    with pytest.raises(DefinitionError, match=re.escape(why)):
        Expression(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a +", "a +: "),
        ("from", "written in quotes"),
        ("upper(1.5)", "upper(1.5): "),
        ("room ~ '('", "with a text: "),
        ("TRY_CAST(at AS TIMESTAMP)", "a number, text or boolean is needed; write STRFTIME(x, '%Y-%m-%d')"),
        ("abs(1, 2, 3)", "abs(1, 2, 3): "),
        ("+".join(f"v{number}" for number in range(40)), "it names 40 values, and more than 30 are refused"),
    ],
)
def test_what_has_no_meaning_is_refused_when_it_is_loaded(text: str, why: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(why)):
        Expression(text)


@pytest.mark.parametrize(("text", "gives"), [("temp + 1", "number"), ("lower(room)", "text")])
def test_a_condition_has_to_be_true_or_false(text: str, gives: str) -> None:
    with pytest.raises(DefinitionError, match=f"it gives a {gives}, and true or false is needed"):
        Expression(text, boolean=True)


@pytest.mark.parametrize(
    "text",
    [
        "temp * 1.8 + 32",
        "battery > 5 or battery is null",
        "f > 80 or lower(room) = 'freezer'",
        "topic not like '%/bridge/%'",
        '"my key" + 1',
        "\"a.b\" = 'it''s -- no comment; a text'",
        "case when a > 1 then 'x' when a < 0 then 'y' else 'z' end",
        "case room when 'hall' then 1 when 'attic' then 2 end",
        "a between 1 and 2 and b not in (1, 2, 3)",
        "not (a = 1)",
        "room ~ '^h.*l$' or room ilike 'A%'",
        "1e3 * .5",
        "größe > 3",
        "a is distinct from b",
    ],
)
def test_what_is_allowed_is_read(text: str) -> None:
    assert Expression(text).text == text


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("temp", "temp"),
        (' "my key" ', "my key"),
        ('"a""b"', 'a"b'),
        ("Temp", "Temp"),
        ("temp + 1", None),
        ("'temp'", None),
        ("3", None),
        ("null", None),
        ("true", None),
        ("current_timestamp", None),
        ("", None),
    ],
)
def test_the_name_of_a_value_alone_is_told_from_other_expressions(text: str, name: str | None) -> None:
    assert bare_name(text) == name


def test_the_largest_expressions_that_are_allowed_are_read_at_once() -> None:
    for text in (
        "+".join(["a"] * 101),
        "||".join(["t"] * 101),
        " or ".join(["a > 1"] * 50),
        "a in (" + ",".join(map(str, range(2_000))) + ")",
        "nullif(" * 7 + "a" + ",1)" * 7,
        "case a " + "when 1 then 2 " * 25 + "end",
        "t ~ '(a+)+$'",
    ):
        assert Expression(text).names


def test_polars_is_not_imported_before_there_is_an_expression() -> None:
    code = (
        "import sys, pipelines, connectors.config, streamer.definition.loading, pipelines.runners.code.map\n"
        "from pipelines.conditions.condition import condition\n"
        "from pipelines.steps import Map\n"
        "condition({'a': 1}); Map(where='a > 1', select={'b': 'a'})\n"
        "pipelines.Sequence([Map(where={'a': 1}, select={'b': 'a'})]).open().close()\n"
        "assert 'polars' not in sys.modules\n"
        "condition('a > 1'); assert 'polars' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(("given", "threads"), [(None, 1), ("2", 2)])
def test_polars_computes_in_the_calling_thread_unless_the_environment_says_otherwise(
    given: str | None, threads: int
) -> None:
    code = "from pipelines.expressions.engine import polars; print(polars().thread_pool_size())"
    environment = {name: value for name, value in os.environ.items() if name != "POLARS_MAX_THREADS"}
    if given is not None:
        environment["POLARS_MAX_THREADS"] = given
    ended = subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60, capture_output=True)
    assert int(ended.stdout) == threads
