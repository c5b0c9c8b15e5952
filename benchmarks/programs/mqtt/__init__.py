"""The programs that are compared on MQTT: each receives, publishes, or runs the whole service, with one client."""
