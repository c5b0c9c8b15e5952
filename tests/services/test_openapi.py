"""What the OpenAPI document of a service says is what it does, whatever a client sends by it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pipelines
import streamer
from connectors.http.endpoint.source import HttpSource
from streamer.agent.running import agent_of

ROOT = Path(__file__).parents[2]
# Not among them: that each request of the right form is accepted, as shapes have to fit the numbers of values.
CHECKS = (
    *("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance"),
    *("response_headers_conformance", "unsupported_method", "negative_data_rejection"),
)


def test_a_client_that_knows_the_document_meets_no_answer_that_it_does_not_name(tmp_path: Path) -> None:
    service = streamer.Service(
        name="digits",
        source={"type": "http", "listen": "127.0.0.1:0"},
        pipeline=pipelines.load(ROOT / "examples" / "digits" / "digits.pipeline.yaml"),
        sink={"type": "http"},
    )
    with service:
        agent = agent_of(service)
        assert agent is not None
        (source,) = (each.source for each in agent._loop.intakes)
        assert isinstance(source, HttpSource)
        url = "http://{}:{}/openapi.json".format(*source.address)
        program = Path(sys.executable).with_name("schemathesis")
        options = ["--max-examples", "20", "--phases", "fuzzing", "--checks", ",".join(CHECKS), "--no-color"]
        command = [str(program), "run", url, "--generation-deterministic", *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=tmp_path)
        answered = source.counts.answered
    assert done.returncode == 0, done.stdout[-3000:]
    assert "8 selected / 8 total" in done.stdout
    assert answered["http", 400] > 5
