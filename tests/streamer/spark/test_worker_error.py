"""Why a query of Spark failed, out of the text of its error."""

from __future__ import annotations

from streamer.spark.workererror import reason_of

FAILED = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [PYTHON_EXCEPTION] Thrown \
from the Python worker: Traceback (most recent call last):
  File "mapping.py", line 67, in __call__
    raise
pipelines.errors.WireError: the payload is no JSON: Expecting value

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "failures.py", line 153, in check
    raise ServiceStopped(
streamer.delivery.failures.ServiceStopped: a[1]@14: decode: give the service a dead_letter
 SQLSTATE: 38000

JVM stacktrace:
org.apache.spark.sql.streaming.StreamingQueryException: [STREAM_FAILED] ...
java.lang.Error: other
"""


def test_it_is_what_the_worker_raised_last() -> None:
    assert reason_of(FAILED) == "a[1]@14: decode: give the service a dead_letter"


def test_an_error_of_no_worker_is_told_in_its_first_line() -> None:
    text = "[STREAM_FAILED] Topic a does not exist\n\nJVM stacktrace:\njava.lang.Error: other\n"
    assert reason_of(text) == "[STREAM_FAILED] Topic a does not exist"
    assert reason_of("\n") == "the query has failed"
