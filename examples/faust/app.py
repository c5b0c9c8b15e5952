"""Digits inside a Faust app: the service of `examples/digits`, an agent that reads its results, and a table."""

import os
from pathlib import Path

import faust

import streamer.faust
from pipelines import Data

SERVICE = Path(__file__).parents[1] / "digits" / "digits.yaml"
BROKERS = os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092").split(",")

# The id is the service's consumer group. The changelog of a table has as many partitions as the topic that it is made
# of: `digits.predictions` has one here.
app = faust.App(
    "digits",
    broker=[f"kafka://{one}" for one in BROKERS],
    store="memory://",
    web_enabled=False,
    topic_disable_leader=True,
    topic_partitions=1,
)

infer = streamer.faust.attach(app, SERVICE)

predictions = app.topic("digits.predictions", value_type=bytes, value_serializer="raw", key_serializer="raw")
counts = app.Table("counts", default=int)


@app.agent(predictions)
async def count(payloads: faust.Stream[bytes]) -> None:
    """How many images of each digit there were."""
    async for payload in payloads:
        counts[Data.from_bytes(payload)["label"]] += 1


@app.timer(interval=5.0)
async def show() -> None:
    """Print the table."""
    if counts:
        print(dict(sorted(counts.items())), flush=True)
