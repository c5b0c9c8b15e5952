"""The server's side of MQTT connections. A broker or an endpoint handles their messages."""

from connectors.mqtt.server.connection import Connection, Handler
from connectors.mqtt.server.limits import Limits
from connectors.mqtt.server.server import Server

__all__ = ["Connection", "Handler", "Limits", "Server"]
