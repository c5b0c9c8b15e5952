"""Where events go."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from pipelines.errors import StreamerError
from streamer.observe.logchoice import from_environment
from streamer.observe.logs import logger

PROGRAM = """
import logging, sys
from streamer.observe.logs import configure, logger
configure({level!r}, as_json={as_json})
logger(service="s").warning("dead letter", at="t[0]@1")
logger().debug("detail")
logging.getLogger("library").error("from %s", "elsewhere")
"""


def lines(level: str, as_json: bool) -> list[str]:
    program = PROGRAM.format(level=level, as_json=as_json)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == ""
    return ran.stderr.splitlines()


def test_events_are_json_lines_on_stderr_libraries_included() -> None:
    ours, theirs = (json.loads(line) for line in lines("info", True))
    assert ours.pop("timestamp")
    assert ours == {"event": "dead letter", "level": "warning", "service": "s", "at": "t[0]@1"}
    assert (theirs["event"], theirs["level"]) == ("from elsewhere", "error")


def test_events_are_text_for_people() -> None:
    assert "dead letter" in lines("warning", False)[0]


@pytest.mark.slow
def test_control_characters_and_secrets_of_foreign_texts_are_not_in_the_log() -> None:
    program = (
        PROGRAM.format(level="info", as_json=False)
        + """
from streamer.observe.shown import remember
remember(["hunter2"])
logger().warning("sink \\x1b[2J", reason="\\x9b31m", at=["http://u:p@h/\\x07", {"a": "hunter2"}])
logging.getLogger("library").error("login %s\\n2026 [error] lost \\u202e", "hunter2")
try:
    raise ValueError("\\x1b[2J hunter2")
except ValueError:
    logging.getLogger("library").exception("trace")
"""
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "Traceback" in ran.stderr
    for mark in ("\x1b", "\x9b", "\x07", "\u202e", "\n2026 [error]", "hunter2", "u:p@"):
        assert mark not in ran.stderr
    as_json = program.replace("as_json=False", "as_json=True")
    ran = subprocess.run([sys.executable, "-c", as_json], capture_output=True, text=True, check=True)
    assert len([json.loads(line) for line in ran.stderr.splitlines()]) == 5
    assert "hunter2" not in ran.stderr


REQUEST = """
import logging, threading
from http.server import HTTPServer, BaseHTTPRequestHandler
from connectors.codecs.schemas.config import RegistryConfig
from connectors.codecs.schemas.registry import SchemaRegistry
from streamer.observe.logs import configure

class Registry(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(404)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(b'{{"error_code": 40401, "message": "no such subject"}}')
    def log_message(self, *told):
        pass

configure({level!r}, as_json=True)
server = HTTPServer(("127.0.0.1", 0), Registry)
threading.Thread(target=server.serve_forever, daemon=True).start()
assert SchemaRegistry(RegistryConfig(url=f"http://127.0.0.1:{{server.server_port}}")).latest("scores-value") is None
logging.getLogger("rules").info("of the user's own step")
logging.getLogger("urllib3").warning("of a client")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("level", "told"), [("info", False), ("debug", True)])
def test_each_request_of_a_client_library_is_logged_with_debug_only(level: str, told: bool) -> None:
    pytest.importorskip("confluent_kafka.schema_registry")
    program = REQUEST.format(level=level)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    events = [json.loads(line)["event"] for line in ran.stderr.splitlines()]
    assert any("scores-value" in event for event in events) is told
    assert events[-2:] == ["of the user's own step", "of a client"]


def test_the_level_decides_what_is_written() -> None:
    assert len(lines("debug", True)) == 3


def test_in_another_program_events_go_through_the_standard_logging(caplog: pytest.LogCaptureFixture) -> None:
    logger(service="s").warning("sink down", sink="kafka")
    assert [record.getMessage() for record in caplog.records] == ["sink down service='s' sink='kafka'"]


RETRIED = """
import stamina

attempts = []
for attempt in stamina.retry_context(ValueError, attempts=3, wait_initial=0.01, wait_jitter=0):
    with attempt:
        attempts.append(attempt.num)
        if len(attempts) < 2:
            raise ValueError("no answer \\x1b[2J from http://user:hunter2@host/")
"""


@pytest.mark.parametrize(
    ("begin", "told"),
    [
        ("from streamer.observe.logs import configure; configure(as_json=True)", True),
        ("from streamer.observe.logs import configure; configure(as_json=False)", True),
        ("from streamer.cli.terminal import quiet; quiet()", False),
    ],
)
@pytest.mark.slow
def test_a_call_that_is_made_again_writes_nothing_to_stdout_and_tells_no_secret(begin: str, told: bool) -> None:
    ran = subprocess.run([sys.executable, "-c", begin + RETRIED], capture_output=True, text=True, check=True)
    assert ran.stdout == ""
    assert ("stamina.retry_scheduled" in ran.stderr) is told
    assert "hunter2" not in ran.stderr
    assert "\x1b" not in ran.stderr


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("", (None, None)),
        ("debug", ("debug", None)),
        ("json", (None, True)),
        (" INFO , text ", ("info", False)),
    ],
)
def test_the_environment_says_level_and_form(said: str, found: tuple[Any, Any]) -> None:
    assert from_environment({"STREAMER_LOG": said}) == found
    assert from_environment({}) == (None, None)


@pytest.mark.parametrize("said", ["info,debug", "json,text", "all"])
def test_a_wrong_value_of_streamer_log_is_refused(said: str) -> None:
    with pytest.raises(StreamerError, match="STREAMER_LOG"):
        from_environment({"STREAMER_LOG": said})
