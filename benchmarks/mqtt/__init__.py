"""The cost of MQTT: clients receive, run a model and publish, at a simulated broker and at mosquitto."""
