"""The parts of a service definition that are not connectors: batching, limits, failures, control."""

from __future__ import annotations

import math
import sys
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import (
    Field,
    PrivateAttr,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from connectors.config import LocalPath
from connectors.http.hosts import is_loopback
from connectors.units import Duration, OneOrMore, Share, Size, host_and_port, listening
from pipelines.described import FrozenSettings
from streamer.batching.waiting import first_wait

WAIT_OF_REQUESTS = 0.002
"""Seconds that requests wait for others at most, where nothing else is said."""
LONGEST_AGE = 0.05
"""`max_age` in seconds where all records are requests."""
LEAST_TARGET = 0.001
"""The shortest `target_latency` in seconds."""


class BatcherSettings(FrozenSettings):
    """The `batch` field of a service: which batcher gathers its records, and what all batchers have in common."""

    type: str
    """Which batcher gathers the records: soft, hard, round, or that of a plug-in."""
    max_records: Annotated[int, Field(ge=1)] = 512
    """The most records in a batch. If more wait and the pipeline is fast, several batches are decoded and sent together. For round the default is no number: the service measures sizes, and takes the smallest whose time for each record is within 10 % of the best."""  # noqa: E501
    max_bytes: Annotated[Size, Field(ge=1)] = 16 << 20
    """Payload bytes at which a batch is closed; a larger record is a batch of its own. For soft and round; the default for round is `limits.in_flight`."""  # noqa: E501

    @property
    def wait(self) -> float:
        """Seconds that the oldest record of a batch waits at most, before any batch was run; infinite: not known."""
        return math.inf

    @property
    def target(self) -> float | None:
        """Seconds from the arrival of a record in which its results are to be handed over; `None`: any."""
        return None

    @property
    def learns_size(self) -> bool:
        """Whether the service measures how many records are best run together."""
        return False

    def for_sources(self, *, perishable: bool, in_flight: int, asked: bool = False) -> BatcherSettings:
        """These settings with the defaults that suit the sources of a service, in fields that were not set.

        `perishable`: all sources are. `in_flight`: as in `Limits`. `asked`: all records are requests, whose clients
        wait.
        """
        return self


class BatchSettings(BatcherSettings):
    """When a batch is complete, for batchers of ours."""

    type: Literal["soft", "hard", "round"] = "soft"
    """When a batch is run. soft: when `max_records` have come, or `max_wait` is over. hard: only with exactly `max_records`, for models with a fixed batch size; with fewer only after `max_age`, or if the broker sends no more before some are acknowledged. round: with at most one record of each camera or partition; the default if all sources are cameras. Plug-ins add others."""  # noqa: E501
    max_wait: Duration = 0.005
    """How long the oldest record of a batch waits for others at most, from its arrival. For soft and round; the default for round is 0. Where all records are requests that a sink answers it is 2 ms, for which they wait only while there are other clients."""  # noqa: E501
    max_age: Duration | None = None
    """For hard: how long the oldest record waits at most before a smaller batch is run after all; by default for ever, and 50 ms where all records are requests that a sink answers."""  # noqa: E501
    target_latency: Duration | None = None
    """For soft, in place of `max_wait`: how long results may take, from the arrival of a record until its results are handed to the sinks. 99 % keep to it while the pipeline has capacity for the load; what is left of it records wait for others, as larger batches save CPU time."""  # noqa: E501

    _of_requests: bool = PrivateAttr(default=False)

    @field_validator("max_age")
    @classmethod
    def _of_a_hard_batch(cls, max_age: float | None, info: ValidationInfo) -> float | None:
        kind = info.data.get("type")
        if max_age is not None and kind != "hard":
            raise ValueError(f"is for batches of type hard; a {kind} one waits for max_wait")
        return max_age

    @field_validator("target_latency")
    @classmethod
    def _of_a_soft_batch(cls, target: float | None, info: ValidationInfo) -> float | None:
        kind = info.data.get("type")
        if target is None or kind is None:
            return target
        if kind != "soft":
            waits = "is run only when it is full" if kind == "hard" else "waits for max_wait"
            raise ValueError(f"is for batches of type soft; a {kind} one {waits}; remove it, or write type: soft")
        if target < LEAST_TARGET:
            raise ValueError(f"{target * 1000:g} ms is less than a batch takes; 1ms is the least")
        return target

    @model_validator(mode="after")
    def _one_wait(self) -> BatchSettings:
        if self.target_latency is not None and "max_wait" in self.model_fields_set:
            raise ValueError("target_latency says how long records wait, and so does max_wait; remove one of them")
        return self

    @property
    def wait(self) -> float:
        """Seconds that the oldest record of a batch waits at most, in a service that has run no batch yet."""
        if self.type == "hard":
            return math.inf if self.max_age is None else self.max_age
        return self.max_wait if self.target_latency is None else first_wait(self.target_latency)

    @property
    def target(self) -> float | None:
        """`target_latency`."""
        return self.target_latency

    def for_sources(self, *, perishable: bool, in_flight: int, asked: bool = False) -> BatchSettings:
        """These settings with other defaults in fields that were not set, if all sources are `perishable`.

        Also where all records are requests (`asked`): these wait for others only while there are other clients.
        `in_flight`: as in `Limits`.
        """
        said = self.model_fields_set
        if asked and self.type == "soft" and not said & {"max_wait", "target_latency"}:
            settings = self.model_copy(update={"max_wait": WAIT_OF_REQUESTS})
            settings._of_requests = True
            return settings
        if asked and self.type == "hard" and "max_age" not in said:
            return self.model_copy(update={"max_age": LONGEST_AGE})
        kind = "round" if perishable and not said & {"type", "target_latency"} else self.type
        if kind != "round":
            return self
        defaults = {"max_wait": 0.0, "max_bytes": in_flight}
        return self.model_copy(
            update={"type": kind, **{name: value for name, value in defaults.items() if name not in said}}
        )

    @property
    def of_requests(self) -> bool:
        """Whether all records are requests, which wait for others only while there are other clients."""
        return self._of_requests

    @property
    def learns_size(self) -> bool:
        """Whether the size of a round is learned, as `max_records` is not given."""
        return self.type == "round" and "max_records" not in self.model_fields_set


class TransactionSettings(FrozenSettings):
    """How long transactions last, with `delivery: exactly_once`."""

    interval: Annotated[Duration, Field(gt=0)] = 0.1
    """How long a transaction is open at most before it is committed, and so how much later results become visible. It is committed sooner if no record waits to be run. With `state: {topic: NAME}` it is the `interval` of the state by default, and no transaction is committed sooner, as each has a message for every key that has changed."""  # noqa: E501
    max_records: Annotated[int, Field(ge=1)] = 100_000
    """The most records of a transaction: then it is committed, even before `interval` is over."""
    timeout: Annotated[Duration, Field(ge=1, validate_default=True)] = 15.0
    """After how long the brokers abort the open transaction of a service that has died. Readers of the results wait for so long after a crash, unless the source has an `instance`."""  # noqa: E501

    @field_validator("timeout")
    @classmethod
    def _longer_than_the_interval(cls, timeout: float, info: ValidationInfo) -> float:
        interval = info.data.get("interval", 0.0)
        if timeout < 2 * interval:
            raise ValueError(
                f"{timeout:g} s is too short for an interval of {interval:g} s: the brokers would abort a transaction "
                "while it is written; make it twice as long at least"
            )
        return timeout

    def with_state(self, interval: float) -> TransactionSettings:
        """The same for transactions that save state, every `interval` seconds unless they say how often."""
        if "interval" in self.model_fields_set:
            return self
        return self.model_copy(update={"interval": min(interval, self.timeout / 2)})


class StateSettings(FrozenSettings):
    """Where the state of steps is saved, together with the positions of their records."""

    path: LocalPath
    """The file, an SQLite database; it is created if it does not exist. Each service of each process needs its own."""
    interval: Annotated[Duration, Field(gt=0)] = 1.0
    """How often it is saved. After a crash the records since then are run again."""


class StateTopicSettings(FrozenSettings):
    """The topic in which the state of steps is saved, in one transaction with the positions of their records."""

    topic: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
    """A compacted topic on the brokers of the source, with a partition for each one of the source's topics; it is created if it does not exist. Each service needs its own."""  # noqa: E501
    interval: Annotated[Duration, Field(gt=0)] = 1.0
    """How often it is saved. After a crash the records since then are run again. With `delivery: exactly_once` it is the default of `transaction.interval`."""  # noqa: E501


class Limits(FrozenSettings):
    """Bounds of a service: of records in flight, and of the time that it waits for others."""

    in_flight: Annotated[Size, Field(ge=1)] = 64 << 20
    """The most payload bytes of records that have arrived and are not confirmed yet; beyond that the service reads no more."""  # noqa: E501
    pixels: Annotated[Size, Field(ge=1)] = 256 << 20
    """The most bytes of decoded images (computed from their headers) that are run together; a batch with more is run in parts. A batch of type hard is always run whole."""  # noqa: E501
    batches: Annotated[int, Field(ge=1)] = 2
    """How many decoded batches wait for the pipeline at most. Batches that were decoded together (8192 records at most) count as one."""  # noqa: E501
    drain: Duration = 25.0
    """How long a stopping service may take to finish the records in flight; those left are read again by the next run. If records take long, a batch is run in portions that take at most a quarter of this."""  # noqa: E501
    parallel: Annotated[int, Field(ge=1)] = 1
    """How many batches run at the same time, each in a pipeline of its own; models are loaded once. Results leave in the order of the records all the same."""  # noqa: E501
    memory: Annotated[Size, Field(ge=1)] | None = None
    """The most memory that the process may take, models included; by default what the system has. A record that needs more fails, and the process goes on. Linux only."""  # noqa: E501
    threads: Annotated[int, Field(ge=0)] = 0
    """Threads on which independent branches of a graph run at the same time; 0: one after the other."""
    confirm: Annotated[Duration, Field(gt=0)] = 10.0
    """How long the service waits for the sinks' confirmations before it logs a warning and waits again. A service that has failed waits once, then ends."""  # noqa: E501
    stuck: Annotated[Duration, Field(gt=0)] = 120.0
    """`/live` answers 503 if one batch takes longer than this, or if a partition that has records gives none for so long."""  # noqa: E501

    @field_validator("memory")
    @classmethod
    def _where_it_can_be_set(cls, memory: int | None) -> int | None:
        if memory is not None and not sys.platform.startswith("linux"):
            raise ValueError(
                "only Linux limits the memory of a process in such a way that a record fails; remove it, and limit "
                "that of a container"
            )
        return memory


class FailureSettings(FrozenSettings):
    """When the service stops because most records fail, so that it does not move a whole topic to the dead letters."""

    stop_ratio: Annotated[float, Field(gt=0, le=1)] = 0.5
    """The service stops when more than this fraction of the last `over` records failed in the same step; 1: never."""
    over: Annotated[int, Field(ge=1)] = 200
    """The number of last records that are looked at."""
    first: Annotated[int, Field(ge=0)] = 20
    """The service also stops when so many records have come since its start and all of them failed in the same step. Until one succeeds it acknowledges none of them, so that they come again once the cause is mended. 0: this is not looked at, which is the default with `stop_ratio: 1`."""  # noqa: E501

    @property
    def first_records(self) -> int:
        """`first`, or 0 where only `stop_ratio: 1` is set, which turns off this stop too."""
        return 0 if self.stop_ratio == 1 and "first" not in self.model_fields_set else self.first


class Control(FrozenSettings):
    """Where metrics and health are served."""

    listen: Annotated[str, listening(9464)]
    """The address of the server, `host:port`. With host 127.0.0.1 only this machine can reach it, with 0.0.0.0 every machine. Port 0 is any free one, which the log names."""  # noqa: E501
    token: Annotated[SecretStr, Field(min_length=1)] | None = None
    """A secret. If it is set, metrics, `/models`, `/cameras`, `/config` and the reasons behind `/live` and `/ready` are shown only to requests with the header `Authorization: Bearer TOKEN`; by default to all. Commands and dead letters always need it: without it there are none."""  # noqa: E501
    hosts: OneOrMore = ()
    """Names by which others reach it, `[digits.example.com]`, where it has no token. IP addresses and names without a dot need not be listed. Requests that name another host, as a web page of a stranger can have a browser do, get health without reasons only."""  # noqa: E501

    @field_validator("hosts")
    @classmethod
    def _lower(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(host.lower() for host in hosts)

    @property
    def note(self) -> str:
        """A warning for `streamer check` if other machines can read metrics; else empty."""
        if self.token is not None or is_loopback(host_and_port(self.listen)[0]):
            return ""
        return "note: every machine that reaches it can read them; add a token, or listen on 127.0.0.1"


class ModelSettings(FrozenSettings):
    """What is done when files of the pipeline's models change while the service runs."""

    follow: Annotated[Duration, Field(gt=0)] | None = None
    """How often to look whether there are new files: a higher version folder (`modelUri: models/digits` with `1/`, `2/`, ...), or a file that was replaced. Files count once they are the same for two looks. Then the pipeline is opened with them, and takes over between two batches; if that fails, the current one goes on. By default the service keeps what it began with."""  # noqa: E501
    keep: Annotated[int, Field(ge=0, le=100)] = 0
    """How many older versions stay open when a new one takes over: removing the new one's folder brings the latest of them back at once, and requests may name them."""  # noqa: E501
    state: Literal["keep", "discard"] = "keep"
    """What becomes of the state of steps that hold records or remember them, such as tracks, when a new version takes over: it goes on with those that have not changed. If one has, with `keep` the new version is refused, with `discard` that step begins anew."""  # noqa: E501
    sticky: str | None = None
    """What decides which of the `variants` a record gets: `key`, its key, or `values.NAME`, one of its values, so that all records of a device get the same; by default its position on the bus. A record without that is divided by its position."""  # noqa: E501

    @field_validator("sticky")
    @classmethod
    def _sticky(cls, sticky: str | None) -> str | None:
        if sticky in (None, "key") or (sticky or "").removeprefix("values.") not in ("", sticky):
            return sticky
        raise ValueError(f'must be key, or values.NAME for the value NAME, not "{sticky}"')


class Profile(FrozenSettings):
    """Where the times of stages and steps are written, for a trace viewer."""

    file: LocalPath
    """The file, in Chrome's trace format; an existing one is replaced."""
    split: Size = 64 << 20
    """Size at which a file is closed and the next one begun: `NAME_1.json`, `NAME_2.json`, ...; 0: never."""
    files: Annotated[int, Field(ge=1)] = 10
    """How many of these files are kept; the oldest are deleted."""


class Tracing(FrozenSettings):
    """Where spans of batches and of their sampled records go. Needs the extra `otel`."""

    endpoint: str = "http://localhost:4318"
    """The address of a collector that takes OTLP over HTTP; `/v1/traces` is added. Headers for it, such as a token, are in the environment variable OTEL_EXPORTER_OTLP_HEADERS."""  # noqa: E501
    sample: Share = 0.01
    """The share of records that get spans, of those that come without a header `traceparent`: `1%`. Of the others those get spans that their sender has marked as sampled."""  # noqa: E501

    @field_validator("endpoint")
    @classmethod
    def _of_http(cls, endpoint: str) -> str:
        address = urlsplit(endpoint)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ValueError(f'an address like http://localhost:4318 is needed, not "{endpoint}"')
        return endpoint
