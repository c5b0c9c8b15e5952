"""An MQTT broker in this process that does what brokers do when they fail, or do it in their own way, by `Faults`."""

from faultymqtt.broker import Broker, Faults
from faultymqtt.running import FaultyMqtt
from faultymqtt.windows import BatchWindow, OverrunWindow, Window

__all__ = ["BatchWindow", "Broker", "Faults", "FaultyMqtt", "OverrunWindow", "Window"]
