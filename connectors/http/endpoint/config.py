"""The fields of requests over HTTP and gRPC in a service file: a source that listens, and a sink that answers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, PrivateAttr, SecretStr, field_validator

from connectors.config import Addressing, SinkConfig, SourceConfig
from connectors.http.endpoint.origins import ANY, origin_of
from connectors.http.hosts import is_loopback
from connectors.metadata.typedfields import TypedHeaders
from connectors.tls.fields import ServerTls
from connectors.units import Duration, Size, host_and_port, listening
from pipelines.errors import DefinitionError
from pipelines.plugins.requirements import Package

COLUMNS = ("client", "path", "protocol", "version")
"""The metadata of a request besides its headers: the client's address, the path (of gRPC the method), http or grpc, and
the version of the model that it names where there are several, else an empty text."""


class HttpSourceConfig(TypedHeaders):
    """Requests over HTTP and gRPC, by the Open Inference Protocol (KServe v2) or in plain JSON: each is a record."""

    model_config = ConfigDict(hide_input_in_errors=True)
    built_by: ClassVar[str] = "connectors.http.endpoint.source:HttpSource"
    record_columns: ClassVar[tuple[str, ...]] = COLUMNS

    type: Literal["http"] = "http"
    """The type of connector."""
    listen: Annotated[str, listening(8000)] = "127.0.0.1:8000"
    """The address on which it listens, `host:port`; port 0 is any free one, which the log names. `0.0.0.0:8000` is open to the network: give it `tls` and `token` then. Services of one process may share an address: a request names its service."""  # noqa: E501
    grpc: Annotated[str, listening(8001)] | None = None
    """The address of gRPC, `host:port` (extra `grpc`); by default none."""
    codec: str | dict[str, Any] = "inference"
    """How bodies become values. inference: requests of the Open Inference Protocol, over HTTP and gRPC. Any other codec reads the bodies of `POST /v1/NAME` and `/predict`."""  # noqa: E501
    token: SecretStr | None = None
    """The token that clients have to send, as `Authorization: Bearer TOKEN`; by default none. Health needs no token. An empty text is none."""  # noqa: E501
    tls: ServerTls | None = None
    """Accepts encrypted connections only. `tls: {}` makes a self-signed certificate at each start (extra `tls`)."""
    key: str | None = None
    """The header that is the key of the record, `headers.NAME`; by default the number of the request."""
    max_body: Annotated[Size, Field(ge=1024)] = 64 << 20
    """Bytes of the largest body, decompressed; a larger one is answered with 413."""
    max_waiting: Annotated[int, Field(ge=1)] = 1000
    """How many requests may wait to be run; one more is answered with 503 and Retry-After."""
    max_held: Annotated[Size, Field(ge=1 << 20)] = 256 << 20
    """Bytes of all requests that may wait to be run; beyond that, too, requests are answered with 503."""
    timeout: Annotated[Duration, Field(gt=0)] = 30.0
    """How long a client waits for its answer; then it gets 504, and a request that was not polled is not run."""
    connections: Annotated[int, Field(ge=1)] = 1000
    """The most connections at a time; one more is closed."""
    hosts: tuple[str, ...] = ()
    """Names of this machine by which clients call it, where there is no token. Requests that name another host are refused, as a web page of somebody else may send them; IP addresses and names without a dot are always accepted."""  # noqa: E501
    origins: tuple[str, ...] = ()
    """Origins of web pages that may ask by a browser's `fetch` and read the answers (CORS), such as `https://app.example`; by default none. `"*"` alone stands for every page on the web."""  # noqa: E501

    @field_validator("origins")
    @classmethod
    def _of_pages(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        chosen = tuple(dict.fromkeys(map(origin_of, origins)))
        if ANY in chosen and len(chosen) > 1:
            raise ValueError(f'"{ANY}" stands for all origins: leave out the others, or leave it out')
        return chosen

    @field_validator("key")
    @classmethod
    def _of_a_header(cls, key: str | None) -> str | None:
        if key is not None and not re.fullmatch(r"headers\.[!#$%&'*+.^_`|~0-9A-Za-z-]+", key):
            raise ValueError(f'headers.NAME is needed, such as headers.x-device, not "{key}"')
        return None if key is None else f"headers.{key.removeprefix('headers.').lower()}"

    def check_packages(self) -> None:
        """As in `ConnectorConfig`, grpcio where it listens for gRPC, cryptography if a certificate has to be made."""
        if self.grpc is not None:
            Package("grpc", "grpc").check(f"{self.label} (grpc)")
        super().check_packages()
        if self.tls is not None and self.tls.cert is None:
            Package("cryptography", "tls").check(f"{self.label} (tls without cert)")

    @property
    def notes(self) -> tuple[str, ...]:
        """Whether anybody in the network can send requests, or read them and the token."""
        noted = super().notes
        if ANY in self.origins:
            noted = (*noted, 'every web page may send requests and read the answers; list its origin instead of "*"')
        open_to_all = [at for at in (self.listen, self.grpc) if at and not is_loopback(host_and_port(at)[0])]
        if not open_to_all:
            return noted
        where = f"every machine that reaches {' or '.join(open_to_all)}"
        if self.token is None or not self.token.get_secret_value():
            return (*noted, f"{where} can send requests; add a token, or listen on 127.0.0.1")
        if self.tls is None:
            return (
                *noted,
                f"requests to {' and '.join(open_to_all)} and their token are not encrypted; add tls",
            )
        return noted

    @property
    def place(self) -> str:
        """The addresses on which it listens."""
        return self.listen if self.grpc is None else f"{self.listen}, gRPC {self.grpc}"

    @property
    def exclusive(self) -> Mapping[str, str]:
        """Its addresses."""
        return {"listen": self.listen} if self.grpc is None else {"listen": self.listen, "grpc": self.grpc}

    @property
    def undivided(self) -> str | None:
        """Only one process can listen at an address."""
        return f"only one process can listen at {self.listen}; run it in one, with limits.parallel"


class HttpSinkConfig(SinkConfig):
    """Results to the clients of the service's `http` source, whose requests they answer. A request that fails is
    answered, too: `{"error": TEXT}`."""

    model_config = ConfigDict(hide_input_in_errors=True)
    built_by: ClassVar[str] = "connectors.http.endpoint.sink:HttpSink"
    answers: ClassVar[bool] = True
    awaited: ClassVar[bool] = True
    _answered: str | None = PrivateAttr(None)
    _failures: bool = PrivateAttr(False)

    type: Literal["http"] = "http"
    """The type of connector."""
    source: str | None = None
    """The name of the `http` source whose clients are answered, if the service has several; by default the first."""
    codec: str | dict[str, Any] = "inference"
    """How results become bodies; by default the source's codec."""

    @property
    def addressing(self) -> Addressing | None:
        """None: an answer has no topic, and no headers of its request."""
        return Addressing("", headers=False)

    @property
    def takes_from(self) -> tuple[str, ...] | None:
        """The source whose clients it answers."""
        return self.sources if self._answered is None else (self._answered,)

    def in_service(self, service: str, sources: Sequence[SourceConfig] = ()) -> Self:
        """The same sink, with the source whose clients it answers, and its codec."""
        listening = [config for config in sources if isinstance(config, HttpSourceConfig)]
        chosen = next((config for config in listening if self.source in (None, config.label)), None)
        if chosen is None:
            named = "no http source" if self.source is None else f'no http source "{self.source}"'
            raise DefinitionError(
                f'sink "{self.label}" answers requests over HTTP, and the service has {named}; add one of type http'
            )
        if self.sources not in (None, (chosen.label,)):
            raise DefinitionError(
                f'sources: sink "{self.label}" answers the clients of the source "{chosen.label}", and gets results '
                "of their records only; leave out sources, or choose another by source: NAME"
            )
        copy = self if "codec" in self.model_fields_set else self.model_copy(update={"codec": chosen.codec})
        copy = copy.model_copy()
        copy._answered = chosen.label
        return copy

    def for_dead_letters(self) -> Self:
        """Raises `DefinitionError`: clients of a sink of this type learn of failures in any case."""
        raise DefinitionError(
            "dead_letter: the clients of an http source are told of failures by the sink of type http; for the records "
            "of other sources choose a topic or a file"
        )

    def for_failures(self) -> Self:
        """The same sink, which tells clients what was wrong with their requests."""
        copy = self.model_copy()
        copy._failures = True
        return copy

    @property
    def failures(self) -> bool:
        """Whether it answers with errors, rather than with results."""
        return self._failures
