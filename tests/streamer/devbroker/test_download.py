"""Why the jars could not be downloaded, in a few words."""

from __future__ import annotations

import errno

import pytest
import requests

from streamer.devbroker.download import LONGEST, explained

REQUEST = requests.Request("GET", "https://repo.example/a.jar").prepare()


@pytest.mark.parametrize(
    ("error", "reason", "remedy"),
    [
        (requests.ConnectionError("...", request=REQUEST), "repo.example cannot be reached", "with a network"),
        (requests.ConnectTimeout("...", request=REQUEST), "repo.example does not answer", "with a network"),
        (requests.exceptions.SSLError("...", request=REQUEST), "certificate of repo.example", "REQUESTS_CA_BUNDLE"),
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full", "free some space"),
        (PermissionError(errno.EACCES, "Permission denied", "/m2/a"), "/m2/a cannot be written", "writable"),
        (RuntimeError("Artifact a not found\nand more"), "Artifact a not found", "with a network"),
    ],
)
def test_a_failed_download_is_explained(error: Exception, reason: str, remedy: str) -> None:
    said, advice = explained(error)
    assert reason in said
    assert "\n" not in said
    assert remedy in advice


def test_a_long_reason_is_cut() -> None:
    assert len(explained(RuntimeError("a" * 10_000))[0]) < LONGEST + 10
