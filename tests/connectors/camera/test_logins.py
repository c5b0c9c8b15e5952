"""Cameras that ask for a login in ways that libav does not know, or in an order in which it finds none."""

from __future__ import annotations

import pytest
from camerareader import reading
from httpcamera import HttpCamera
from rtspcamera import RtspCamera

from connectors.camera.web.login import Challenges

LOGIN = ("viewer", "s3cret, \u00e4")
DIGEST = 'Digest realm="IP Camera", nonce="c0ffee", qop="auth", algorithm={}'
MD5, SHA = DIGEST.format("MD5"), DIGEST.format("SHA-256")


@pytest.mark.parametrize(
    ("challenges", "text"),
    [
        (
            [SHA],
            "asks for a login by Digest with SHA-256, which the libav of this PyAV cannot do: set the camera",
        ),
        ([MD5, SHA], "offers a login by Digest with MD5 and Digest with SHA-256, in an order"),
        (['NTLM realm="x"'], "asks for a login by Ntlm"),
        (['Basic realm="x"'], "another user name and password (401)"),
        ([SHA, MD5], "another user name and password (401)"),
    ],
)
def test_a_login_that_libav_does_not_speak_is_not_blamed_on_the_password(challenges: list[str], text: str) -> None:
    with RtspCamera(login=LOGIN) as camera:
        camera.challenges = challenges
        gate = {"url": camera.address, "username": "viewer", "password": "not-the-password"}
        with reading({"gate": gate}) as reader:
            reader.wait(lambda: reader.reason("gate") != "None", "a reason")
            assert text in reader.reason("gate")
            assert "s3cret" not in reader.reason("gate")


@pytest.mark.parametrize("challenges", [[SHA], [MD5, SHA], [SHA, MD5], [MD5], [f"{MD5}, {SHA}"]])
def test_an_http_camera_is_logged_in_to_by_md5_or_sha_256_in_any_order(challenges: list[str]) -> None:
    with HttpCamera(login=LOGIN) as camera:
        camera.challenges = challenges
        gate = {"url": f"http://127.0.0.1:{camera.port}/live.mjpeg?channel=1", "username": LOGIN[0]}
        with reading({"gate": gate | {"password": LOGIN[1]}, "wrong": gate | {"password": "wr0ngpass"}}) as reader:
            reader.see("gate")
            reader.wait(lambda: "(401)" in reader.reason("wrong"), "a refusal")
            assert "another user name and password" in reader.reason("wrong")


def test_challenges_in_one_header_are_read_one_by_one() -> None:
    offered = Challenges.of(
        ['Basic realm="a, b", Digest realm="c", nonce="d=,e", qop="auth,auth-int", algorithm=SHA-256']
    )
    assert [challenge.name for challenge in offered.challenges] == ["Basic", "Digest with SHA-256"]
    assert offered.challenges[1].parameters["nonce"] == "d=,e"
