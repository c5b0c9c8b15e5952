"""`SchemaRegistry`: the schemas of a registry, each fetched once, by confluent-kafka's client."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from json import JSONDecodeError
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

from connectors.codecs.schemas.config import RegistryConfig
from connectors.codecs.schemas.framing import HEADER, Frame, SchemaRef, by_guid, by_id
from connectors.secrets import Scrubber
from pipelines.errors import ConnectorError, DefinitionError, MissingPackageError, WireError

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

T = TypeVar("T")

MOST_SCHEMAS: Final = 1000
"""The most schemas that are kept; the least recently used one is dropped, and fetched again when needed."""
FORGET_UNKNOWN: Final = 10.0
"""Seconds for which an unknown id is not requested again: many records may have the same unknown id."""
MOST_REFERENCES: Final = 200
"""Schemas that one schema may refer to, directly or not."""

_AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""HTTP statuses after which a retry may succeed."""
_DENIED: Final = frozenset({401, 403})
_NO_REGISTRY: Final = "another server seems to answer, or a proxy; is this the registry's address?"

_mocks: dict[str, SchemaRegistryClient] = {}
_mocks_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema of a registry."""

    kind: str
    """`AVRO`, `JSON` or `PROTOBUF`."""
    text: str
    references: Mapping[str, Registered] = field(default_factory=dict)
    """The schemas that it refers to, by the names that it has for them, theirs among them."""
    id: int | None = None
    guid: str | None = None
    version: int | None = None
    """The version number in its subject."""


class SchemaRegistry:
    """Asks a registry for schemas. Not for several threads at once.

    Raises `ConnectorError` for errors that concern all records: retriable while the registry cannot be reached, or
    something else answers at its address, and not if it refuses the login. An unknown id is a `WireError`, the failure
    of a record. No message holds a credential.
    """

    def __init__(self, config: RegistryConfig, form: str | None = None) -> None:
        """`form` is the format that schemas are requested in, where there are several: `serialized` for descriptors of
        protobuf."""
        self.config = config
        self._form = {} if form is None else {"fmt": form}
        self._scrub = Scrubber(config.secrets)
        self._made: SchemaRegistryClient | None = None
        self._known: OrderedDict[SchemaRef, Any] = OrderedDict()
        self._unknown: OrderedDict[SchemaRef, float] = OrderedDict()

    def parsed(self, schema: SchemaRef, parse: Callable[[Registered], T]) -> T:
        """The result of `parse` for this schema, which is called once. An exception of it fails each record with this
        schema."""
        known = self._known.get(schema)
        if known is None:
            registered = self._schema(schema)
            try:
                known = parse(registered)
            except WireError as error:
                # A schema that cannot be used stays so.
                known = error
            self._known[schema] = known
            if len(self._known) > MOST_SCHEMAS:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(schema)
        if isinstance(known, WireError):
            raise WireError(str(known))
        return known

    def latest(self, subject: str) -> Registered | None:
        """The latest schema of a subject; `None` if there is none."""
        schema = self._asked(
            f"the latest schema of {subject}", lambda client: client.get_latest_version(subject, **self._form)
        )
        return None if schema is None else self._registered(schema.schema, schema.schema_id, schema.guid)

    def written(
        self, subject: str, kind: str, text: str, references: Sequence[tuple[str, str, Registered]] = ()
    ) -> Registered:
        """This schema as the subject has it; registered there if it may be.

        `references` are the name, the subject and the schema of others that it refers to. Raises `ConnectorError` if
        the subject does not have it, or refuses it.
        """
        from confluent_kafka.schema_registry import Schema, SchemaReference

        schema = Schema(text, kind, [SchemaReference(name, of, other.version) for name, of, other in references])
        if self.config.auto_register:
            answer = self._asked(
                f"the subject {subject} for a new schema",
                lambda client: client.register_schema_full_response(subject, schema),
            )
            if answer is not None and (answer.version is None or answer.guid is None):
                # Registries return the version, and some the GUID, only by a lookup.
                answer = self._asked(f"the subject {subject}", lambda client: client.lookup_schema(subject, schema))
        else:
            answer = self._asked(f"the subject {subject}", lambda client: client.lookup_schema(subject, schema))
        if answer is None:
            raise ConnectorError(
                f"the schema registry {self.config.url} does not have this schema in the subject {subject}; register "
                "it, or write auto_register: true"
            )
        return Registered(kind, text, {}, answer.schema_id, answer.guid, answer.version)

    def about(self, topic: str | None, record: str, otherwise: str) -> str:
        """The findings of a request to the registry, as a text: for a codec in a sink the schema of results.

        `record` names their type; `otherwise` describes the effect of a subject without a schema.
        """
        if topic is None:
            subjects = self._asked("its subjects", lambda client: client.get_subjects())
            return f"{self.config.url} answers, and has {len(subjects or ())} subjects"
        subject = self.subject(topic, record)
        schema = self.latest(subject)
        if schema is None:
            return f"{self.config.url} has no subject {subject} yet: {otherwise}"
        return f"{self.config.url} has the subject {subject}: {schema.text}"

    def frame(self, registered: Registered) -> Frame:
        """The frame that names this schema in messages. Raises `ConnectorError` if it is to be a header and the schema
        has no GUID."""
        if self.config.framing == "payload":
            assert registered.id is not None
            return Frame(by_id(registered.id))
        if registered.guid is None:
            raise ConnectorError(
                f"the schema registry {self.config.url} gives schemas no GUID, by which headers name them; "
                "write framing: payload"
            )
        return Frame(b"", (HEADER, by_guid(registered.guid)))

    def subject(self, topic: str | None, record: str) -> str:
        """The subject of results. Raises `DefinitionError` if it is named by a topic that is not known."""
        try:
            return self.config.subject_of(topic, record)
        except ValueError as error:
            raise DefinitionError(str(error)) from None

    def close(self) -> None:
        """Close the connections to the registry."""
        if self._made is not None and not self.config.url.startswith("mock:"):
            self._made.close()
        self._made = None

    def _schema(self, schema: SchemaRef) -> Registered:
        now = time.monotonic()
        if self._unknown.get(schema, 0.0) > now:
            raise WireError(_unknown_text(schema, self.config.url))

        def ask(client: Any) -> Any:
            if isinstance(schema, UUID):
                return client.get_schema_by_guid(str(schema), **self._form)
            return client.get_schema(schema, **self._form)

        answer = self._asked(f"the schema {schema}", ask)
        if answer is None:
            self._unknown[schema] = now + FORGET_UNKNOWN
            self._unknown.move_to_end(schema)
            if len(self._unknown) > MOST_SCHEMAS:
                self._unknown.popitem(last=False)
            raise WireError(_unknown_text(schema, self.config.url))
        return self._registered(answer, None, None)

    def _registered(self, schema: Any, schema_id: int | None, guid: str | None) -> Registered:
        references: dict[str, Registered] = {}
        self._refer(schema, references)
        return Registered(schema.schema_type or "AVRO", schema.schema_str or "", references, schema_id, guid)

    def _refer(self, schema: Any, references: dict[str, Registered]) -> None:
        for ref in schema.references or ():
            if ref.name in references:
                continue
            if len(references) >= MOST_REFERENCES:
                raise WireError(f"the schema refers to more than {MOST_REFERENCES} others")
            version = self._asked(
                f"version {ref.version} of {ref.subject}",
                lambda client, ref=ref: client.get_version(ref.subject, ref.version, **self._form),  # type: ignore[misc]
            )
            if version is None:
                raise WireError(f"the schema refers to version {ref.version} of {ref.subject}, which there is not")
            # Entered before its own references, so that circular references end.
            references[ref.name] = Registered(version.schema.schema_type or "AVRO", version.schema.schema_str or "")
            self._refer(version.schema, references)

    def _asked(self, what: str, question: Callable[[Any], T]) -> T | None:
        """The response of the registry; `None` if the subject or schema does not exist."""
        from confluent_kafka.schema_registry import SchemaRegistryError

        url = self.config.url
        try:
            return question(self._client())
        except SchemaRegistryError as error:
            status = error.http_status_code
            # Only registries send their own error codes; other servers and proxies send pages.
            known = error.error_code not in (None, SchemaRegistryError.UNKNOWN)
            if status == 404 and known:
                return None
            reason = self._scrub(str(error)) if known else f"{_NO_REGISTRY} (HTTP status {status})"
            if status in _DENIED:
                raise ConnectorError(
                    f"the schema registry {url} refuses the request for {what}: {reason}; correct auth of the registry"
                ) from None
            raise ConnectorError(
                f"the schema registry {url}, asked for {what}: {reason}", retriable=status in _AGAIN or status == 404
            ) from None
        except (JSONDecodeError, AttributeError, KeyError, TypeError):
            # The client takes it for granted that a successful answer is a registry's.
            raise ConnectorError(
                f"the schema registry {url}, asked for {what}: {_NO_REGISTRY}", retriable=True
            ) from None
        except (ConnectorError, MissingPackageError):
            raise
        except Exception as error:  # noqa: BLE001 - of the HTTP library, of DNS
            reason = self._scrub(f"{type(error).__name__}: {error}")
            raise ConnectorError(f"the schema registry {url} does not answer: {reason}", retriable=True) from None

    def _client(self) -> SchemaRegistryClient:
        if self._made is None:
            self._made = _new_client(self.config, self._scrub)
        return self._made


def mock_registry(url: str) -> SchemaRegistryClient:
    """The registry in memory of a `mock://NAME` address: one for each name, in this process."""
    from confluent_kafka.schema_registry import SchemaRegistryClient

    with _mocks_lock:
        if url not in _mocks:
            _mocks[url] = SchemaRegistryClient.new_client({"url": url})
        return _mocks[url]


def forget_mock(url: str) -> None:
    """Forget the registry in memory of this address, and all its schemas."""
    with _mocks_lock:
        _mocks.pop(url, None)


def _new_client(config: RegistryConfig, scrub: Scrubber) -> SchemaRegistryClient:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise MissingPackageError(error.name or "confluent_kafka", "schemas", "a schema registry") from None
    if config.url.startswith("mock:"):
        return mock_registry(config.url)
    try:
        return SchemaRegistryClient.new_client(config.properties())
    except (ValueError, TypeError, OSError) as error:
        raise ConnectorError(f"the registry of the codec cannot be used: {scrub(str(error))}") from None


def _unknown_text(schema: SchemaRef, url: str) -> str:
    return f"the schema registry {url} has no schema {schema}; is it the registry that the producer writes to?"
