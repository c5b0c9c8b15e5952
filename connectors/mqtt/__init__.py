"""MQTT source and sink. Importing this loads no client library."""
