"""What a client of Konduit Serving gets for a request that failed."""

from __future__ import annotations

import json

import pytest

from connectors.http.endpoint.konduiterror import konduit_error


@pytest.mark.parametrize(
    ("step", "text", "code"),
    [
        ("decode", "no JSON: here", "DATA_PARSING_ERROR"),
        ("decode", "INVALID_ACCEPT_HEADER: no JSON: here", "INVALID_ACCEPT_HEADER"),
        ("model", "no JSON: here", "PIPELINE_PROCESSING_ERROR"),
    ],
)
def test_a_failed_request_has_konduits_code_and_status(step: str, text: str, code: str) -> None:
    answer = konduit_error(step, "WireError", text)
    assert answer.status == 500
    assert json.loads(answer.body) == {"errorCode": code, "errorMessage": "no JSON: here"}
