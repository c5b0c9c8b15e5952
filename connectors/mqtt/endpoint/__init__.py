"""`type: mqtt_endpoint`: a service that MQTT clients connect to themselves, without a broker, and that answers them."""

from connectors.mqtt.endpoint.config import MqttEndpointSinkConfig, MqttEndpointSourceConfig

__all__ = ["MqttEndpointSinkConfig", "MqttEndpointSourceConfig"]
