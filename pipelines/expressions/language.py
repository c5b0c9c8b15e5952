"""The language of expressions: which texts are allowed, before anything is parsed.

Expressions come from definitions, which may be of strangers. What is read here is only what `pipelines.expressions` can
vouch for: values by name, literals, operators, CASE, and calls of `FUNCTIONS`. Whatever looks at other records than its
own (aggregates, OVER, subqueries), at the clock, or raises for a single bad value (CAST) is refused with what to write
instead; so are texts that would make the parser or the planner slow or deep.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pipelines.errors import DefinitionError, nearest
from pipelines.expressions.functions import FUNCTIONS

MOST_CHARACTERS: Final = 10_000
MOST_OPERATORS: Final = 100
"""Operators, calls and words of SQL in an expression: the planner takes time that grows with the square of these."""
MOST_NESTED: Final = 10
MOST_WORK: Final = 4_000
"""Parts of an expression after the planner has written them out: some functions repeat their argument."""

_TOKEN: Final = re.compile(
    r"""
      (?P<blank>  \s+ )
    | (?P<text>   '(?:[^']|'')*' )
    | (?P<quoted> "(?:[^"]|"")+" )
    | (?P<number> (?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)? )
    | (?P<word>   [^\W\d]\w* )
    | (?P<sign>   <> | != | <= | >= | \|\| | !~\* | !~ | ~\* | ~ | [-+*/%=<>(),] )
    """,
    re.VERBOSE,
)
_NO_CALLS: Final = frozenset(
    [
        "and",
        "or",
        "not",
        "in",
        "is",
        "like",
        "ilike",
        "between",
        "case",
        "when",
        "then",
        "else",
        "end",
        "null",
        "true",
        "false",
    ]
)
"""Words that may stand before a bracket without being a call."""
_WORDS: Final = _NO_CALLS | {"as", "escape", "distinct", "from", "regexp", "rlike"}
_CLOCK: Final = "it would be the time at which the expression was read; that of the record is into: {timestamp: at}"
_ANY_LENGTH: Final = "it could make texts of any length"
_INSTEAD: Final[Mapping[str, str]] = {
    "cast": "write TRY_CAST(x AS TYPE), which gives no value where that is impossible, and ensure: [x is not null] "
    "where such records are to fail",
    "strptime": "a text cannot be read as a time; have devices send numbers, or a FUNCTION step read it",
    "extract": "write DATE_PART('hour', x)",
    "pow": "write POWER(x, y)",
    "lpad": _ANY_LENGTH,
    "rpad": _ANY_LENGTH,
    "repeat": _ANY_LENGTH,
    "now": _CLOCK,
}
"""Why a function is refused, and what to write in its place."""
_CLOCKS: Final = frozenset(["current_timestamp", "current_date", "current_time", "localtime", "localtimestamp"])
_OTHERS: Final = "an expression sees one record at a time"
_AGGREGATES: Final = frozenset(
    [
        "avg",
        "count",
        "first",
        "last",
        "max",
        "min",
        "sum",
        "median",
        "mean",
        "std",
        "stddev",
        "variance",
        "var",
        "corr",
        "covar",
        "quantile",
        "array_agg",
        "row_number",
        "rank",
        "dense_rank",
        "lag",
        "lead",
        "unnest",
        "explode",
        "columns",
        "any",
        "all",
        "some",
        "exists",
        "first_value",
        "last_value",
        "string_agg",
        "listagg",
    ]
)
_CLAUSES: Final = frozenset(["select", "over", "union", "partition"])
_LITERALS: Final = frozenset(["date", "time", "timestamp", "datetime", "interval"])
_SIGNS: Final[Mapping[str, str]] = {
    "::": "write TRY_CAST(x AS TYPE)",
    "//": "write FLOOR(a / b)",
    ".": 'a key with dots is written in double quotes, "a.b"; of a value inside another the codec makes a value: '
    "fields: {b: /a/b}",
    "[": "of an element of a list the codec makes a value: fields: {first: /tags/0}",
    "--": "a comment is not part of an expression",
    "/*": "a comment is not part of an expression",
    "^": "write POWER(x, y)",
    "`": 'a key is written in double quotes, "my key"',
    "$": 'a key is written in double quotes, "my key"',
    "@": 'a key is written in double quotes, "@key"',
    "'": "the text does not end: a quotation mark inside a text is written twice, 'it''s'",
    '"': "the key does not end: a double quote inside a key is written twice",
    "==": "write =",
}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int

    @property
    def lower(self) -> str:
        """Of a word what it is whatever its case; empty for others."""
        return self.text.lower() if self.kind == "word" else ""


def check_language(text: str) -> None:
    """Raise `DefinitionError` unless `text` is written in the language of expressions; it may still have no meaning."""
    if not text.strip():
        raise DefinitionError("the expression is empty")
    if len(text) > MOST_CHARACTERS:
        raise DefinitionError(f"the expression has {len(text)} characters, and more than {MOST_CHARACTERS} are refused")
    tokens = list(_tokens(text))
    for token, after in zip(tokens, [*tokens[1:], _Token("", "", len(text))], strict=True):
        _check_token(token, after)
    _check_size(tokens)


def bare_name(text: str) -> str | None:
    """The key, if `text` is only the name of a value, as `temp` or `"my key"`; else `None`."""
    if not text.strip():
        return None
    first, *more = _tokens(text.strip())
    if more or first.kind not in ("word", "quoted"):
        return None
    if first.kind == "quoted":
        return first.text[1:-1].replace('""', '"')
    return None if first.lower in _WORDS | _CLAUSES | _CLOCKS else first.text


def _tokens(text: str) -> Iterator[_Token]:
    at, last = 0, _Token("blank", "", 0)
    while at < len(text):
        sign = next((sign for sign in ("::", "//", "--", "/*", "==") if text.startswith(sign, at)), None)
        match = None if sign else _TOKEN.match(text, at)
        if match is None:
            raise _unknown(text, at, sign or text[at])
        token = _Token(match.lastgroup or "", match.group(), at)
        if {token.kind, last.kind} <= {"word", "number", "text", "quoted"} and last.start + len(last.text) == at:
            raise DefinitionError(
                f"{last.text}{token.text}: put a blank or an operator between {last.text} and {token.text}"
            )
        if token.kind != "blank":
            yield token
        at, last = match.end(), token


def _unknown(text: str, at: int, sign: str) -> DefinitionError:
    why = _SIGNS.get(sign, "it has no meaning in an expression")
    shown = sign if sign.isprintable() else f"U+{ord(sign):04X}"
    return DefinitionError(f"{shown} (character {at + 1}): {why}")


def _check_token(token: _Token, after: _Token) -> None:
    word = token.lower
    if not word:
        return
    if word in _CLAUSES:
        raise DefinitionError(
            f'{token.text}: {_OTHERS}; a value of this name is written in double quotes, "{token.text}"'
        )
    if after.kind == "text" and word in _LITERALS:
        raise DefinitionError(f"{token.text} {after.text}: write times as numbers, such as milliseconds since 1970")
    if word in _CLOCKS:
        raise DefinitionError(f"{token.text}: {_CLOCK}")
    if after.text != "(" or word in _NO_CALLS or word in FUNCTIONS:
        return
    if word in _INSTEAD:
        raise DefinitionError(f"{token.text}(...): {_INSTEAD[word]}")
    if word in _AGGREGATES:
        raise DefinitionError(f"{token.text}(...): {_OTHERS}")
    known = [name.upper() for name in FUNCTIONS]
    raise DefinitionError(f"{token.text}(...): no such function{nearest(token.text.upper(), known)}")


def _check_size(tokens: list[_Token]) -> None:
    operators = sum(token.lower in _WORDS or (token.kind == "sign" and token.text not in ",)") for token in tokens)
    if operators > MOST_OPERATORS:
        raise DefinitionError(
            f"the expression has {operators} operators and calls, and more than {MOST_OPERATORS} are refused: write a "
            "list as x in (1, 2, 3), or divide it between two MAP steps"
        )
    depth, factors, work = 0, [1], 0
    for position, token in enumerate(tokens):
        # A list of literals is as good as one.
        if token.kind not in ("number", "text") and token.text != ",":
            work += factors[-1]
        if token.text == "(" or token.lower == "case":
            depth += 1
            if depth > MOST_NESTED:
                raise DefinitionError(
                    f"the expression has more than {MOST_NESTED} brackets and CASEs inside each other"
                )
            factors.append(factors[-1] * _repeats(tokens, position))
        elif (token.text == ")" or token.lower == "end") and depth:
            depth -= 1
            factors.pop()
    if work > MOST_WORK:
        raise DefinitionError("the expression is nested too deeply; divide it between two MAP steps")


def _repeats(tokens: list[_Token], opened: int) -> int:
    """How often the planner may write out what stands inside the bracket or CASE at this position."""
    if tokens[opened].lower == "case":
        return _branches(tokens, opened)
    function = FUNCTIONS.get(tokens[opened - 1].lower) if opened else None
    # Also that of BETWEEN is written twice.
    return 2 if function is None else function.repeats


def _branches(tokens: list[_Token], case: int) -> int:
    """How often the value of a CASE is compared, as `CASE x WHEN 1 ... WHEN 2 ...` writes it out; 1 for `CASE WHEN`."""
    if case + 1 < len(tokens) and tokens[case + 1].lower == "when":
        return 1
    depth, branches = 0, 0
    for token in tokens[case:]:
        depth += token.lower == "case"
        depth -= token.lower == "end"
        branches += depth == 1 and token.lower == "when"
        if not depth:
            break
    return max(branches, 1)
