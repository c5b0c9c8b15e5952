"""`Expression`: one SQL expression, parsed, checked, and tried on the kinds of values that its names may have."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import islice, product
from typing import Any, Final

from pipelines.errors import DefinitionError
from pipelines.expressions.engine import polars
from pipelines.expressions.kinds import KINDS, Kind
from pipelines.expressions.language import check_language

MOST_NAMES: Final = 30
"""Values that an expression may name."""
_MOST_TRIED: Final = 3**5
_EXAMPLES: Final[Mapping[Kind, Any]] = {"number": [1.0], "text": ["1"], "boolean": [True]}


class Expression:
    """An expression over values of one record: `temp * 1.8 + 32`.

    Raises `DefinitionError` where `text` is no expression, or no kinds of values suit it, and `MissingPackageError`
    without Polars.
    """

    def __init__(self, text: str, *, boolean: bool = False) -> None:
        """`boolean`: whether its results are to be true or false, as those of a condition."""
        check_language(text)
        self.text = text
        self._polars = pl = polars()
        self._boolean = boolean
        try:
            self.parsed = pl.sql_expr(text)
            self.names = tuple(dict.fromkeys(self.parsed.meta.root_names()))
        except pl.exceptions.PolarsError as error:
            raise DefinitionError(
                f"{text}: {first_line(error)} (a key that is a word of SQL is written in quotes)"
            ) from None
        if len(self.names) > MOST_NAMES:
            raise DefinitionError(f"{text}: it names {len(self.names)} values, and more than {MOST_NAMES} are refused")
        strict = str(self.parsed).replace("strict_cast(Boolean)", "")
        if "strict_cast" in strict:
            raise DefinitionError(f"{text}: write TRY_CAST(x AS TYPE), which gives no value where that is impossible")
        self.misfit = lru_cache(maxsize=1024)(self._misfit)
        """Why values of these kinds, one for each of `names`, do not suit the expression; `None` if they do."""
        kinds = self._first_kinds()
        if kinds is None:
            raise DefinitionError(f"{text}: {self._no_kinds()}")
        self.kinds: Mapping[str, Kind] = dict(zip(self.names, kinds, strict=True))
        """The first kinds of values that suit it, by name."""

    def error(self, kinds: Mapping[str, Kind]) -> str:
        """The error of records whose values are of these kinds, which do not suit the expression."""
        of_names = tuple(kinds[name] for name in self.names)
        for place, name in enumerate(self.names):
            for kind in KINDS:
                if self.misfit((*of_names[:place], kind, *of_names[place + 1 :])) is None:
                    hint = f" (types: {{{name}: {kind}}} of the codec)" if kinds[name] == "text" else ""
                    return f'"{name}" is a {kinds[name]}; {self.text} needs a {kind}{hint}'
        values = ", ".join(f"{name} ({kinds[name]})" for name in self.names)
        return f"{self.text} does not suit {values}: {self.misfit(of_names)}"

    @property
    def selected(self) -> Any:
        """What Polars evaluates: for a condition false also where the expression is missing."""
        return self.parsed.fill_null(False) if self._boolean else self.parsed

    def _first_kinds(self) -> tuple[Kind, ...] | None:
        tried = islice(product(KINDS, repeat=len(self.names)), _MOST_TRIED)
        return next((kinds for kinds in tried if self.misfit(kinds) is None), None)

    def _no_kinds(self) -> str:
        """Why no kinds suit: what Polars says if all values are of one kind."""
        reasons: dict[str | None, Kind] = {}
        for kind in KINDS:
            reasons.setdefault(self.misfit((kind,) * len(self.names)), kind)
        if len(reasons) == 1:
            return str(next(iter(reasons)))
        return "; ".join(f"with a {kind}: {reason}" for reason, kind in reasons.items())

    def _misfit(self, kinds: tuple[Kind, ...]) -> str | None:
        pl = self._polars
        values = {name: pl.Series(name, _EXAMPLES[kind]) for name, kind in zip(self.names, kinds, strict=True)}
        try:
            dtype = pl.DataFrame(values).select_seq(self.parsed.alias("result")).dtypes[0]
        except pl.exceptions.PolarsError as error:
            return first_line(error)
        if self._boolean:
            return None if dtype in (pl.Boolean, pl.Null) else f"it gives a {_word(dtype)}, and true or false is needed"
        if dtype.is_numeric() or dtype in (pl.Boolean, pl.String, pl.Null):
            return None
        hint = "; write STRFTIME(x, '%Y-%m-%d')" if dtype.is_temporal() else ""
        return f"it gives a {_word(dtype)}, and a number, text or boolean is needed{hint}"


def first_line(error: Exception) -> str:
    """What Polars says, in one line."""
    return str(error).partition("\n")[0][:200]


def _word(dtype: Any) -> str:
    return "number" if dtype.is_numeric() else "text" if str(dtype) == "String" else str(dtype).lower()
