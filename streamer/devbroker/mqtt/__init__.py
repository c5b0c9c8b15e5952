"""MQTT brokers for development and tests: mosquitto where it is installed, else amqtt."""

from streamer.devbroker.mqtt.choose import MqttBroker, open_mqtt_broker
from streamer.devbroker.mqtt.development import DevelopmentBroker
from streamer.devbroker.mqtt.mosquitto import LocalMosquitto, find_mosquitto

__all__ = ["DevelopmentBroker", "LocalMosquitto", "MqttBroker", "find_mosquitto", "open_mqtt_broker"]
