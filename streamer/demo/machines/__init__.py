"""`streamer demo sensors`: simulated machines publish their vibration over MQTT, and a service finds the faults."""
