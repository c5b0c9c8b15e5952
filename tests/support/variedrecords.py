"""A thousand records in JSON, as strangers send them, and a pipeline on which every engine has to agree."""

from __future__ import annotations

import json
from typing import Any, Final

COUNT: Final = 1000
PIPELINE: Final[list[dict[str, Any]]] = [
    {
        "@type": "MAP",
        "ensure": ["x < 990"],
        "keep": ["x"],
        "select": {"y": "x * 2", "kind": "CASE WHEN x < 500 THEN 'low' ELSE 'high' END"},
    }
]
KEEP: Final = ["id", "имя", "nested", "big", "flag", "note"]


def payloads() -> list[bytes]:
    """One in a hundred is no JSON; others lack `x`, or have it, or `id`, of another type."""
    return [b"junk %d" % number if number % 100 == 50 else _document(number) for number in range(COUNT)]


def _document(number: int) -> bytes:
    record: dict[str, Any] = {"id": number, "x": number % 1000}
    match number % 17:
        case 1:
            record["x"] = str(number)
        case 2:
            del record["x"]
        case 3:
            record["x"] = None
        case 4:
            record["x"] = number / 3
        case 5:
            record["имя"] = f"насос №{number}"
        case 6:
            record["note"] = "é\U0001f600\n"
        case 7:
            record["nested"] = {"a": [1, 2], "b": {"c": [[True], []]}, "ключ": 1e300}
        case 8:
            record["id"] = str(number)
        case 9:
            record["x"] = [number]
        case 10:
            record["big"] = 2**62 + number
        case 11:
            record["flag"] = number % 2 == 0
        case 12:
            record["x"] = True
    return json.dumps(record, ensure_ascii=bool(number % 2)).encode()
