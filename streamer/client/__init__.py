"""`streamer.Client`: asks a service, over HTTP, Kafka or MQTT."""
