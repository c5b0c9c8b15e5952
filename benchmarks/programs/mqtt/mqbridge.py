"""mq-bridge: `poll` of a batch, `commit` after it."""

from __future__ import annotations

from mq_bridge import Consumer

from benchmarks.programs.mqtt.job import WINDOW, MqttJob, Told

_MOST = 64
"""Messages of a poll."""


def main() -> None:
    """Run until SIGTERM."""
    job = MqttJob.from_arguments()
    told = Told(job)
    endpoint = {
        "url": f"mqtt://{job.bootstrap}",
        "topic": job.source,
        "client_id": job.group,
        "qos": 1,
        "protocol": "v5" if job.version == "5" else "v3",
        "max_inflight": WINDOW,
        # With its default of 100 a poll of more waits for ever.
        "queue_capacity": WINDOW,
    }
    with Consumer.from_config({"mqtt": endpoint}) as consumer:
        while True:
            messages = consumer.poll(min(job.batch, _MOST), 100)
            if messages:
                consumer.commit()
                told.add(len(messages))


if __name__ == "__main__":
    main()
