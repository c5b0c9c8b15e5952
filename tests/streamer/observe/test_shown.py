"""Texts from elsewhere are shown with control characters as escapes and with secrets masked."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamer.observe import shown as module
from streamer.observe.shown import MASK, escaped, json_shown, masked, names_a_secret, remember, shown


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_known", frozenset())


@pytest.mark.parametrize(
    ("raw", "safe"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),
        ("two\nlines\r", r"two\nlines\r"),
        ("\x9b31m", r"\x9b31m"),
        ("user\u202egnp.exe", r"user\u202egnp.exe"),
        ("\u2066a\u2069 \u200b", r"\u2066a\u2069 \u200b"),
        ("\ud800", r"\ud800"),
        ("zwölf 犬 \u05e9", "zwölf 犬 \u05e9"),
    ],
)
def test_control_characters_are_shown_as_escapes(raw: str, safe: str) -> None:
    assert shown(raw) == escaped(raw) == safe


@given(st.text())
@example("\x7f\x9b\u2028\U000e0001\ud800")
def test_nothing_that_is_not_printable_is_left(text: str) -> None:
    assert shown(text).isprintable()
    assert json.loads(json_shown({"k": [text]})) == {"k": [text]}
    assert json_shown([text]).isprintable()
    assert json_shown([text], indent=2).replace("\n", "").isprintable()


def test_numbers_and_errors_are_shown_too() -> None:
    assert shown(7) == "7"
    assert shown(ValueError("a\x1bb")) == r"a\x1bb"


@pytest.mark.parametrize(
    ("raw", "safe"),
    [
        ("http://user:pass@host:80/x", f"http://{MASK}@host:80/x"),
        ("see https://token@h and http://h/a@b", f"see https://{MASK}@h and http://h/a@b"),
        ("http://u:p@ss@h/", f"http://{MASK}@h/"),
        ('"amqps://u:p@h"', f'"amqps://{MASK}@h"'),
        ("http://h/m?x=1&access_token=abc&y=2", f"http://h/m?x=1&access_token={MASK}&y=2"),
        ("http://h/m?X-Amz-Signature=abc", f"http://h/m?X-Amz-Signature={MASK}"),
        ("me@example.org has no scheme", "me@example.org has no scheme"),
    ],
)
def test_credentials_in_urls_are_masked(raw: str, safe: str) -> None:
    assert masked(raw) == shown(raw) == safe


def test_remembered_secrets_are_masked_wherever_they_stand_the_longest_first() -> None:
    remember(["hunter2", "hunter2-and-more", "abc", " padded\n", ""])
    assert masked("hunter2-and-more, hunter2! abc padded") == f"{MASK}, {MASK}! abc {MASK}"


@pytest.mark.parametrize(
    "name",
    [
        *("sasl.password", "ssl.key.password", "token", "auth_token", "clientSecret", "AWS_SECRET_ACCESS_KEY"),
        *("apiKey", "api_key", "apikey", "ssl.key.pem", "DB_PWD", "dbpassword", "credentials", "PRIVATE-KEY"),
    ],
)
def test_names_of_secrets_are_known(name: str) -> None:
    assert names_a_secret(name)


@pytest.mark.parametrize("name", ["key", "keys", "topic", "max_tokens", "tokenizer", "keep", "KEY", "monkey", "item"])
def test_other_names_are_not_taken_for_secrets(name: str) -> None:
    assert not names_a_secret(name)


@pytest.mark.parametrize("word", ["none", "None", "null", "true", "False", "abc"])
def test_words_that_are_no_secrets_are_not_masked(word: str) -> None:
    remember([word])
    assert masked(f"a topic that takes {word}") == f"a topic that takes {word}"
