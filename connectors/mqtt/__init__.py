"""MQTT: feeds of devices in, results out. Importing this loads no client library."""
