"""A service that reads files: its positions are in a file, and its state in another, of the same records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

SERVICE = """
name: pumps
source: {type: file, path: pumps.jsonl, format: jsonl, checkpoint: pumps.done}
pipeline:
  - {"@type": DEDUP, by: pump, for: 1d, time: arrival}
sink: {type: file, path: results.jsonl, format: jsonl}
state: {path: pumps.state}
"""


@pytest.fixture
def run(cli: Any, tmp_path: Path) -> Any:
    """`run(pump)` has the service read one more record; returns how the command ended, and all its results."""
    (tmp_path / "pumps.yaml").write_text(SERVICE)

    def run(pump: int) -> tuple[Any, list[str]]:
        with (tmp_path / "pumps.jsonl").open("a") as file:
            file.write(f'{{"pump":{pump}}}\n')
        ended = cli("run", tmp_path / "pumps.yaml")
        return ended, (tmp_path / "results.jsonl").read_text().splitlines()

    return run


def test_a_state_file_that_is_gone_is_told_from_a_first_start_until_the_state_is_to_begin_anew(
    run: Any, cli: Any, tmp_path: Path
) -> None:
    assert run(1)[1] == ['{"pump":1}']
    assert run(1)[1] == ['{"pump":1}']
    for name in ("pumps.state", "pumps.state-wal", "pumps.state-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    # The first start has made a new file, which changes nothing.
    for _ in range(2):
        ended, results = run(1)
        assert ended.code == 2, ended
        assert "is of a state that was saved on host" in ended.err
        assert "streamer state forget" in ended.err
        assert results == ['{"pump":1}']
    assert cli("state", "forget", tmp_path / "pumps.state").code == 0
    ended, results = run(2)
    assert ended.code == 0, ended
    assert results == ['{"pump":1}', '{"pump":1}', '{"pump":2}']
    assert run(2)[1] == results


def test_an_older_state_file_is_refused(run: Any, tmp_path: Path) -> None:
    run(1)
    older = (tmp_path / "pumps.state").read_bytes()
    run(2)
    (tmp_path / "pumps.state").write_bytes(older)
    ended, _ = run(3)
    assert ended.code == 2, ended
    assert "is older: it has save" in ended.err


def test_positions_that_were_put_back_behind_those_of_the_last_start_are_refused(run: Any, tmp_path: Path) -> None:
    run(1)
    run(2)
    (tmp_path / "pumps.done").unlink()
    ended, _ = run(3)
    assert ended.code == 2, ended
    assert "was acknowledged, and the saved state has seen records up to" in ended.err
