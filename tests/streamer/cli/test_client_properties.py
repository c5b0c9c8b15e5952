"""Properties of a client on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from streamer.cli.options import client_properties


def test_a_password_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("s3cret=x\n")
    given = ["sasl.username=me", f"sasl.password=@{tmp_path / 'password'}", "ssl.key.password=@@at"]
    assert client_properties(given) == {
        "sasl.username": "me",
        "sasl.password": "s3cret=x",
        "ssl.key.password": "@at",
    }


def test_a_file_that_is_not_there_is_told_with_the_property() -> None:
    with pytest.raises(typer.BadParameter, match=r"sasl\.password: the file nowhere cannot be read: No such file"):
        client_properties(["sasl.password=@nowhere"])
