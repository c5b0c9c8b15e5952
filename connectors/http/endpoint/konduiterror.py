"""`konduit_error`: what a client of Konduit Serving gets for a request that failed."""

from __future__ import annotations

import json
from typing import Final

from connectors.codecs.konduit.codec import CODES
from connectors.http.endpoint.request import JSON, Answer

PARSING: Final = "DATA_PARSING_ERROR"
PROCESSING: Final = "PIPELINE_PROCESSING_ERROR"


def konduit_error(step: str, error: str, text: str) -> Answer:
    """The answer of Konduit Serving's HTTP server (`InferenceHttpApi`) to a request that failed in `step`.

    It has status 500, `errorCode` and `errorMessage`, whoever is to blame; `error` is the class of the error.
    """
    code, separator, rest = text.partition(": ")
    if separator and code in CODES:
        text = rest
    else:
        code = PARSING if step == "decode" else PROCESSING
    body = json.dumps({"errorCode": code, "errorMessage": text}, ensure_ascii=False)
    return Answer(500, (JSON,), body.encode(), text)
