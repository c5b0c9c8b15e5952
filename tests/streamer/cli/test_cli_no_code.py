"""Where STREAMER_NO_CODE is set, commands that connect to the buses of a service file run no code of it either."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from streamer.definition.nocode import VARIABLE

pytestmark = pytest.mark.slow

CODE = "open('ran', 'w').close()\n\n\ndef token(config: str) -> tuple[str, float]:\n    return '', 0.0\n"


@pytest.mark.parametrize("command", ["tap", "send", "replay", "outbox"])
def test_no_code_runs_and_no_file_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Any, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, "1")
    (tmp_path / "login.py").write_text(CODE)
    (tmp_path / "records.jsonl").write_text("{}\n")
    kafka = {"type": "kafka", "bootstrap": "127.0.0.1:1", "client": {"oauth_cb": "login:token"}}
    service = {
        "source": {**kafka, "topics": "a"},
        "pipeline": [],
        "sink": {**kafka, "topic": "b", "outbox": {"path": "theirs.outbox"}},
        "dead_letter": {**kafka, "topic": "c"},
    }
    file = tmp_path / "theirs.yaml"
    file.write_text(yaml.safe_dump(service))
    more = ["records.jsonl"] if command == "send" else []
    ended = cli(command, file, *more)
    assert ended.code == 2
    assert "client.oauth_cb runs code, and --no-code (STREAMER_NO_CODE) refuses" in ended.err
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "theirs.outbox").exists()
