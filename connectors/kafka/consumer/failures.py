"""`Failures`: the failure that ends a Kafka source, and whether the brokers can be reached."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from connectors.kafka.client.errors import NO_SUCH_TOPIC, REFUSED_LOGIN, error_of, explained, is_passing
from connectors.kafka.client.properties import scrubber
from connectors.kafka.client.reachability import Reachability
from connectors.kafka.config import KafkaSourceConfig
from connectors.kafka.consumer.reading import PartitionError
from pipelines.errors import ConnectorError

_log = logging.getLogger(__name__)

Result = TypeVar("Result")


class Failures:
    """Decides which of the client's errors end the source, and keeps the first of these for `poll` to raise."""

    def __init__(self, config: KafkaSourceConfig, reach: Reachability) -> None:
        """`reach` is given what the client reports about the brokers."""
        self.first: ConnectorError | None = None
        """The failure that ends the source."""
        self.met = False
        """Whether the brokers have accepted the login."""
        self.reach = reach
        self.label = f"source {config.label}"
        self.scrub = scrubber(config)
        self._config = config
        self._only_patterns = all(topic.startswith("^") for topic in config.topics)

    def add(self, failure: ConnectorError) -> None:
        """Note an error with which the source ends."""
        self.first = self.first or failure

    def raise_first(self) -> None:
        """Raise the failure that ends the source, once."""
        failure, self.first = self.first, None
        if failure is not None:
            raise failure

    def explained(self, exception: KafkaException, doing: str = "") -> ConnectorError:
        """The client's error as a `ConnectorError`; `doing` says what failed."""
        return explained(error_of(exception), f"{self.label}: {doing}" if doing else self.label, self.scrub)

    def attempt(self, call: Callable[[], Result], doing: str) -> Result | None:
        """The result of `call`; `None` if it raised an error, with which the source ends."""
        try:
            return call()
        except KafkaException as exception:
            self.add(self.explained(exception, doing))
        except ConnectorError as error:
            self.add(error)
        return None

    def on_error(self, error: KafkaError) -> None:
        """librdkafka's `error_cb`."""
        text = self.scrub(error.str())
        if error.fatal() or (error.code() in REFUSED_LOGIN and not self.met):
            self.add(explained(error, self.label, self.scrub))
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.reach.suspect(f"{self._config.brokers}: {text}")
        else:
            # The client logs this error itself.
            self.reach.heard(text)

    def note(self, failed: PartitionError) -> None:
        """The client delivered this error in place of a record."""
        error, topic, partition, _ = failed
        where = f"{self.label}: {topic or ', '.join(self._config.topics)}"
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            self.add(
                ConnectorError(
                    f"{where}, partition {partition}: {self.scrub(error.str())}; the records from the "
                    f"group's position on are gone or never were: set out_of_range to earliest or latest to go on, or "
                    f"start with --from"
                )
            )
        elif error.code() == KafkaError._MAX_POLL_EXCEEDED:
            _log.warning("%s: %s", where, error.str())
        elif error.code() in NO_SUCH_TOPIC and self._only_patterns:
            _log.info("%s: %s", where, error.str())
        elif is_passing(error):
            _log.info("%s: %s", where, self.scrub(error.str()))
        else:
            self.add(explained(error, where, self.scrub))
