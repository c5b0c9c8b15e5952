"""What MQTT costs: clients receive, run a model and publish, at a played broker and at mosquitto."""
