"""A service tried without a broker: on memory connectors, and on the cases of a file."""

from streamer.testing.running import DeadLetter, Report, ServiceFailed, payload, run

__all__ = ["DeadLetter", "Report", "ServiceFailed", "payload", "run"]
