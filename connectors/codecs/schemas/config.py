"""`registry: {url: ...}` of a codec: the address of the schema registry, and how payloads name their schema."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from connectors.localpath import LocalPath
from connectors.secrets import wrapped
from connectors.units import Duration
from pipelines.described import FrozenSettings
from pipelines.harmless import Harmless
from pipelines.plugins.requirements import Package, all_of

REGISTRY_PACKAGES: Final = all_of(
    *(Package(name, "schemas") for name in ("confluent_kafka", "attrs", "authlib", "cachetools", "certifi"))
)
"""The packages that the client of schema registries needs."""

CLIENT_OPTIONS: Final = Harmless(
    frozenset(
        {
            "basic.auth.credentials.source",
            "bearer.auth.client.id",
            "bearer.auth.client.secret",
            "bearer.auth.credentials.source",
            "bearer.auth.identity.pool.id",
            "bearer.auth.issuer.endpoint.url",
            "bearer.auth.logical.cluster",
            "bearer.auth.scope",
            "cache.capacity",
            "cache.latest.ttl.sec",
            "max.retries",
            "proxy",
            "retries.max.wait.ms",
            "retries.wait.ms",
        }
    ),
    "others of the registry's client may call functions, or log in as this machine",
    {
        "basic.auth.credentials.source": frozenset({"USER_INFO", "URL"}),
        # Without a machine's identity, as that which a cloud's metadata service gives.
        "bearer.auth.credentials.source": frozenset({"STATIC_TOKEN", "OAUTHBEARER"}),
    },
)
"""The properties of a registry's client that any service file may set."""


class RegistryAuth(FrozenSettings):
    """The login at a schema registry: a user with a password, or a token."""

    user: str | None = None
    """The user."""
    password: SecretStr | None = None
    """The user's password, `${REGISTRY_PASSWORD}`."""
    token: SecretStr | None = None
    """A bearer token, in place of user and password."""
    cluster: str = "default"
    """The logical cluster that goes with a token, on Confluent Cloud."""

    @model_validator(mode="after")
    def _one_way(self) -> RegistryAuth:
        if (self.user is None) != (self.password is None) or (self.user is None) == (self.token is None):
            raise ValueError("give user and password, or token")
        return self


class RegistryConfig(FrozenSettings):
    """A Confluent schema registry, or one with the same interface (Apicurio, Karapace, Redpanda)."""

    url: str
    """Its address, several separated by commas: `http://localhost:8081`. `mock://NAME` is one in memory, for tests."""
    auth: RegistryAuth | None = None
    """The login: `{user: ..., password: ...}` or `{token: ...}`."""
    ca: LocalPath | None = None
    """A file with the certificates of authorities, by default those of the package certifi."""
    cert: LocalPath | None = None
    """A certificate to show, in PEM."""
    key: LocalPath | None = None
    """The key of that certificate."""
    key_password: SecretStr | None = None
    """The password of the key."""
    framing: Literal["payload", "header"] = "payload"
    """Where written messages name their schema: in five bytes before the payload, or in the header `__value_schema_id`, by the schema's GUID. Records of both kinds are read."""  # noqa: E501
    strategy: Literal["topic", "record", "topic_record"] = "topic"
    """The subject that the schema of results is looked for in: `TOPIC-value`, the name of the record type, or `TOPIC-NAME`."""  # noqa: E501
    subject: str | None = Field(default=None, min_length=1)
    """That subject itself, in place of a strategy."""
    auto_register: bool = False
    """Whether to register the schema of results if its subject does not have it; else that is an error."""
    timeout: Duration = Field(default=5.0, gt=0)
    """How long an answer may take; after that the request is sent again."""
    client: Annotated[dict[str, Any], CLIENT_OPTIONS] = Field(default_factory=dict)
    """Further properties of confluent-kafka's `SchemaRegistryClient`, such as `proxy`."""

    @field_validator("url")
    @classmethod
    def _without_credentials(cls, url: str) -> str:
        for address in url.split(","):
            parts = urlsplit(address.strip())
            if parts.scheme not in ("http", "https", "mock") or not parts.netloc:
                raise ValueError("the address of a registry begins with http://, https:// or mock://")
            if "@" in parts.netloc:
                raise ValueError("a URL is shown in messages: write user and password in auth")
        return url

    @field_validator("client", mode="before")
    @classmethod
    def _masked(cls, client: object) -> object:
        if not isinstance(client, dict):
            return client
        ours = ("url", "timeout", "basic.auth.user.info", "bearer.auth.token")
        for name in client:
            if name in ours or str(name).startswith("ssl."):
                raise ValueError(f"{name} is said by a field: url, timeout, auth, ca, cert, key or key_password")
        return wrapped(client)

    def subject_of(self, topic: str | None, record: str) -> str:
        """The subject for results of this topic whose type has this name.

        Raises `ValueError` if the strategy needs the topic, and that is not known, or made from values.
        """
        if self.subject is not None:
            return self.subject
        if self.strategy == "record":
            return record
        if topic is None or "{" in topic:
            why = "the sink has none" if topic is None else f"{topic} is made from values"
            raise ValueError(f"the subject is named by the topic, and {why}: add strategy: record or subject: NAME")
        return f"{topic}-value" if self.strategy == "topic" else f"{topic}-{record}"

    def properties(self) -> dict[str, Any]:
        """The same as properties of `SchemaRegistryClient`. The client does not retry: its callers do."""
        properties: dict[str, Any] = {"url": self.url, "timeout": self.timeout, "max.retries": 0}
        if self.auth is not None and self.auth.password is not None:
            properties["basic.auth.user.info"] = f"{self.auth.user}:{self.auth.password.get_secret_value()}"
        if self.auth is not None and self.auth.token is not None:
            properties["bearer.auth.credentials.source"] = "STATIC_TOKEN"
            properties["bearer.auth.token"] = self.auth.token.get_secret_value()
            properties["bearer.auth.logical.cluster"] = self.auth.cluster
        files = {"ssl.ca.location": self.ca, "ssl.certificate.location": self.cert, "ssl.key.location": self.key}
        properties.update((name, str(file)) for name, file in files.items() if file is not None)
        if self.key_password is not None:
            properties["ssl.key.password"] = self.key_password.get_secret_value()
        for name, value in self.client.items():
            properties[name] = value.get_secret_value() if isinstance(value, SecretStr) else value
        return properties

    @property
    def secrets(self) -> dict[str, object]:
        """The secrets among these, to be masked in texts."""
        auth = {} if self.auth is None else dict(self.auth)
        return {**self.client, **auth, "key_password": self.key_password}
