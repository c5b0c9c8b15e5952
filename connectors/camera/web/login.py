"""`Challenges`: the ways to log in that a camera offers, and the answers to them that libav cannot give itself."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from connectors.camera.address import Address
from connectors.camera.errors import RefusedError

_HASHES: Final = {"MD5": "md5", "SHA-256": "sha256"}
_OF_LIBAV: Final = ("MD5", "MD5-SESS")
_NEXT: Final = re.compile(r",\s*(?=(?:basic|digest|bearer|ntlm|negotiate)\b(?!=))", re.IGNORECASE)
_PARAMETER: Final = re.compile(r'([A-Za-z]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^",\s]+))')


class Challenge(NamedTuple):
    """An authentication scheme that the server offers."""

    scheme: str
    """In lower case: `digest`, `basic`, ..."""
    parameters: Mapping[str, str]

    @property
    def algorithm(self) -> str:
        """The hash algorithm of Digest, in capitals; MD5 by default."""
        return self.parameters.get("algorithm", "MD5").upper()

    @property
    def name(self) -> str:
        """The scheme's name for messages."""
        return f"Digest with {self.algorithm}" if self.scheme == "digest" else self.scheme.capitalize()


class Challenges(NamedTuple):
    """All authentication schemes that a 401 response offers, in its order."""

    challenges: tuple[Challenge, ...]

    @classmethod
    def of(cls, headers: Iterable[str]) -> Challenges:
        """Parse the values of the headers `WWW-Authenticate`."""
        texts = [text.strip() for header in headers for text in _NEXT.split(header)]
        return cls(tuple(_read(text) for text in texts if text))

    @property
    def refusal(self) -> RefusedError | None:
        """The error where libav can answer none of them; `None` if it can, so that the login is wrong.

        Of several that are Digest libav answers the last, whatever it asks for.
        """
        digests = [challenge for challenge in self.challenges if challenge.scheme == "digest"]
        if not self.challenges or (digests and digests[-1].algorithm in _OF_LIBAV):
            return None
        if not digests and any(challenge.scheme == "basic" for challenge in self.challenges):
            return None
        names = " and ".join(dict.fromkeys(challenge.name for challenge in self.challenges))
        if any(challenge.algorithm in _OF_LIBAV for challenge in digests):
            return RefusedError(
                f"the camera offers a login by {names}, in an order in which the libav of this PyAV finds none it can "
                "answer: set the camera to Digest with MD5 alone, or to Basic (401)"
            )
        return RefusedError(
            f"the camera asks for a login by {names}, which the libav of this PyAV cannot do: set the camera to Digest "
            "with MD5, or to Basic (401)"
        )

    def authorization(self, address: Address, method: str, path: str) -> str | None:
        """The value of `Authorization` for one request with the login of the address, by the first Digest that can be
        answered; `None` if there is none (RFC 7616)."""
        parts = urlsplit(address.target)
        if parts.username is None:
            return None
        user, password = unquote(parts.username), unquote(parts.password or "")
        for challenge in self.challenges:
            kind = _HASHES.get(challenge.algorithm.removesuffix("-SESS"))
            quality = [word.strip() for word in challenge.parameters.get("qop", "").lower().split(",")]
            if challenge.scheme == "digest" and kind is not None and (quality == [""] or "auth" in quality):
                return _digest(challenge, kind, user, password, method, path, with_quality="auth" in quality)
        return None


def _read(text: str) -> Challenge:
    scheme, _, rest = text.partition(" ")
    parameters = {name.lower(): quoted or bare for name, quoted, bare in _PARAMETER.findall(rest)}
    return Challenge(scheme.lower(), parameters)


def _digest(
    challenge: Challenge, kind: str, user: str, password: str, method: str, path: str, *, with_quality: bool
) -> str:
    def hashed(*texts: str) -> str:
        return hashlib.new(kind, ":".join(texts).encode(), usedforsecurity=False).hexdigest()

    given = challenge.parameters
    realm, nonce, ours = given.get("realm", ""), given.get("nonce", ""), secrets.token_hex(8)
    secret = hashed(user, realm, password)
    if challenge.algorithm.endswith("-SESS"):
        secret = hashed(secret, nonce, ours)
    request = hashed(method, path)
    fields = {"username": user, "realm": realm, "nonce": nonce, "uri": path}
    if with_quality:
        fields["response"] = hashed(secret, nonce, "00000001", ours, "auth", request)
    else:
        fields["response"] = hashed(secret, nonce, request)
    if "opaque" in given:
        fields["opaque"] = given["opaque"]
    quoted = [f'{name}="{value}"' for name, value in fields.items()]
    if "algorithm" in given:
        quoted.append(f"algorithm={given['algorithm']}")
    if with_quality or challenge.algorithm.endswith("-SESS"):
        quoted.append(f'cnonce="{ours}"')
    if with_quality:
        quoted += ["qop=auth", "nc=00000001"]
    return "Digest " + ", ".join(quoted)
