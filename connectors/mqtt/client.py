"""The fields by which sources and sinks reach a broker."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, SecretStr, field_validator, model_validator

from connectors.config import ConnectorConfig, LocalPath
from connectors.mqtt.address import BrokerAddress
from connectors.mqtt.protocol.packets import V5, V311, Version
from connectors.mqtt.session.login import Login
from connectors.tokens import token_function
from connectors.units import Duration
from pipelines.described import FrozenSettings
from pipelines.errors import ConnectorError
from pipelines.plugins.requirements import Package


class TlsConfig(FrozenSettings):
    """Settings of TLS, besides those of the system."""

    ca: LocalPath | None = None
    """File with the certificates of trusted authorities, PEM; by default those of the system."""
    cert: LocalPath | None = None
    """File with the client's own certificate, PEM, for brokers that ask for one."""
    key: LocalPath | None = None
    """File with its private key, PEM; by default it is in `cert`, too."""
    key_password: SecretStr | None = None
    """The password of the private key."""
    server_name: str | None = None
    """The name that the broker's certificate has to have; by default the host of `url`."""
    alpn: tuple[str, ...] = ()
    """Names of protocols for brokers that share a port with others, such as `x-amzn-mqtt-ca` on port 443."""
    verify: bool = True
    """Whether the broker's certificate is checked. Without the check, an attacker on the network can read and change
    all messages."""

    def context(self) -> ssl.SSLContext:
        """The context of the connection. Raises `ConnectorError` for a file that cannot be used."""
        try:
            context = ssl.create_default_context(cafile=None if self.ca is None else str(self.ca))
            if not self.verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if self.cert is not None:
                password = None if self.key_password is None else self.key_password.get_secret_value()
                # A function, as openssl would ask at the terminal for a password that is missing.
                context.load_cert_chain(self.cert, self.key, lambda: password or "")
            if self.alpn:
                context.set_alpn_protocols(list(self.alpn))
        except (OSError, ValueError) as error:
            named = ", ".join(
                f"{key} {path}" for key, path in (("ca", self.ca), ("cert", self.cert), ("key", self.key)) if path
            )
            reason = error.reason if isinstance(error, ssl.SSLError) and error.reason else error
            raise ConnectorError(f"tls: {reason}; check {named or 'its fields'}") from None
        return context

    @model_validator(mode="after")
    def _key_with_certificate(self) -> TlsConfig:
        if self.cert is None and (self.key is not None or self.key_password is not None):
            raise ValueError("key is the private key of a certificate, and cert names none")
        return self


class MqttClientFields(ConnectorConfig):
    """The fields that MQTT sources and sinks share."""

    model_config = ConfigDict(hide_input_in_errors=True)
    browsed_by: ClassVar[str | None] = "connectors.mqtt.browser:MqttBrowser.of"
    default_client_id: ClassVar[str] = "{service}-{label}"
    """The client id if the service file names none."""

    url: str = "mqtt://localhost:1883"
    """The broker: `mqtt://host:1883`, or `mqtts://host:8883` with TLS; with `client: paho` also `ws://host/path` and `wss://host/path`."""
    client_id: str | None = Field(default=None, min_length=1, max_length=65_535)
    """The client id, under which the broker keeps the session. By default made of the names of the service and the connector. Only one connection may have it at a time: every process, and every source and sink, needs its own."""  # noqa: E501
    version: Literal["auto", "5", "3.1.1"] = "auto"
    """The version of MQTT: `auto` is 5, or 3.1.1 with a broker that does not know 5."""
    keepalive: Annotated[Duration, Field(ge=1, le=65_535)] = 30.0
    """The keep-alive of MQTT: a dead connection is noticed after 1.25 times this. Whole seconds."""
    username: str | None = None
    """The user name to log in with."""
    password: SecretStr | None = None
    """The password to log in with."""
    token: str | None = None
    """For passwords that expire: a function, as module:function. It is called before each connection, with an empty text, and returns the password and when it expires (seconds since 1970)."""  # noqa: E501
    tls: TlsConfig | None = None
    """Certificates and settings of TLS; by default those of the system. It needs an `mqtts://` or `wss://` URL."""
    client: Literal["builtin", "paho"] = "builtin"
    """The client library: `builtin` is streamer's own; `paho` is paho-mqtt, for WebSockets and proxies (slower, and without QoS 2)."""  # noqa: E501

    @property
    def exclusive(self) -> Mapping[str, str]:
        """Its client id."""
        return {**super().exclusive, "client_id": self.client_id or self.label}

    @field_validator("url")
    @classmethod
    def _known_url(cls, url: str) -> str:
        return str(BrokerAddress.parse(url))

    @field_validator("version", mode="before", json_schema_input_type=Literal["3.1.1", "5", "5.0", "4", 4, 5])
    @classmethod
    def _version_as_text(cls, version: object) -> object:
        # YAML reads 5 as a number, and 3.1.1 as text; some write the protocol level, 4, for 3.1.1.
        known: dict[object, str] = {5: "5", 4: "3.1.1", "5.0": "5", "4": "3.1.1"}
        return known.get(version, version) if isinstance(version, (int, float, str)) else version

    @model_validator(mode="after")
    def _one_way_in(self) -> MqttClientFields:
        address = self.address
        if address.websocket and self.client != "paho":
            raise ValueError(f"{address.scheme}:// is a WebSocket, which needs another client; add client: paho")
        if self.tls is not None and not address.tls:
            raise ValueError(f"tls is given, but {address.scheme}:// is not encrypted; write {address.scheme}s://")
        if self.token is not None and self.password is not None:
            raise ValueError("password and token are two ways to log in; leave one of them out")
        if self.password is not None and self.username is None and self.version != "5":
            raise ValueError("a password without a username is possible in MQTT 5 only; add username, or version: 5")
        return self

    @property
    def address(self) -> BrokerAddress:
        """The parts of `url`."""
        return BrokerAddress.parse(self.url)

    @property
    def code_keys(self) -> tuple[str, ...]:
        """As in `ConnectorConfig`, and `token`."""
        return (*super().code_keys, *(("token",) if self.token is not None else ()))

    @property
    def functions(self) -> tuple[str, ...]:
        """The token function."""
        return () if self.token is None else (self.token,)

    @property
    def file_keys(self) -> Mapping[str, Path]:
        """As in `ConnectorConfig`, without `tls.ca`: trusted certificates are not secret."""
        return {key: path for key, path in super().file_keys.items() if key != "tls.ca"}

    def conflicts(self, others: Sequence[ConnectorConfig]) -> list[str]:
        """Other connectors that use the same client id at the same broker."""
        return [
            f'client_id "{self.client_id}" is that of {other.label}, too: a broker keeps the connection of only one of '
            "them; give each its own"
            for other in others
            if isinstance(other, MqttClientFields)
            and self.client_id is not None
            and (self.client_id, self.address) == (other.client_id, other.address)
        ]

    def check_packages(self) -> None:
        """As in `ConnectorConfig`, and paho-mqtt where `client` names it."""
        super().check_packages()
        if self.client == "paho":
            Package("paho", "mqtt").check(f"{self.label} (client: paho)")

    def connection(self) -> dict[str, Any]:
        """The fields of `session.settings.Settings` that follow from these. Raises `ConnectorError` for a `token`
        that cannot be loaded."""
        address = self.address
        password = None if self.password is None else self.password.get_secret_value()
        token = None if self.token is None else token_function("token", self.token)
        tls = self.tls or TlsConfig()
        versions: dict[str, Version | None] = {"auto": None, "5": V5, "3.1.1": V311}
        return {
            "address": address,
            "client_id": self.client_id or self.label,
            "login": Login(self.username, password, token),
            "tls": partial(tls.context) if address.tls else None,
            "server_name": tls.server_name,
            "version": versions[self.version],
            "keep_alive": max(1, round(self.keepalive)),
        }

    def named_in(self, service: str) -> str:
        """The client id, with the name of the service."""
        return self.client_id or self.default_client_id.format(service=service, label=self.label)
