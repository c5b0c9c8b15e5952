"""The address of a broker: `mqtt://host:1883`, `mqtts://host:8883`, and by paho `ws://host/path`, `wss://host/path`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import urlsplit

from pipelines.errors import nearest

PORTS: Final = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
"""The default port of each scheme."""
_ELSEWHERE: Final = {"tcp": "mqtt", "ssl": "mqtts", "tls": "mqtts", "http": "ws", "https": "wss"}
"""Schemes that other clients have for the same."""


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The parts of a broker's URL. `path` is that of a WebSocket."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @classmethod
    def parse(cls, url: str) -> Self:
        """The parts of this URL. Raises `ValueError` with the reason if it is invalid."""
        text = url if "://" in url else f"mqtt://{url}"
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError as error:
            raise ValueError(
                f"{_shown(url)} is not a URL of a broker ({error}); write it as mqtt://host:1883"
            ) from None
        if (ours := _ELSEWHERE.get(parts.scheme)) is not None:
            raise ValueError(f'"{parts.scheme}" is not a scheme of MQTT; write {ours}:// in its place')
        if parts.scheme not in PORTS:
            raise ValueError(
                f'"{parts.scheme}" is not a scheme of MQTT{nearest(parts.scheme, PORTS)}; there are {", ".join(PORTS)}'
            )
        if parts.username is not None or parts.password is not None:
            raise ValueError(
                "the URL holds a login, which would be shown in logs; use the fields username and password"
            )
        if not parts.hostname:
            raise ValueError(f'"{url}" names no host; write it as {parts.scheme}://host:{PORTS[parts.scheme]}')
        if port == 0:
            raise ValueError(f'"{url}": port 0 is none; write it as {parts.scheme}://host:{PORTS[parts.scheme]}')
        if parts.query or parts.fragment or (parts.path not in ("", "/") and parts.scheme in ("mqtt", "mqtts")):
            raise ValueError(f'"{url}" has something behind the port; write it as {parts.scheme}://host:port')
        return cls(parts.scheme, parts.hostname, port or PORTS[parts.scheme], parts.path)

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.scheme in ("mqtts", "wss")

    @property
    def websocket(self) -> bool:
        """Whether the connection is a WebSocket."""
        return self.scheme in ("ws", "wss")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


def _shown(url: str) -> str:
    # A URL that cannot be parsed may hold a password before its host.
    return f'"{url}"' if "@" not in url else "this"
