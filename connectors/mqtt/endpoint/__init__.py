"""`type: mqtt_endpoint`: MQTT clients connect to the service itself, without a broker, and get answers."""

from connectors.mqtt.endpoint.config import MqttEndpointSinkConfig, MqttEndpointSourceConfig

__all__ = ["MqttEndpointSinkConfig", "MqttEndpointSourceConfig"]
