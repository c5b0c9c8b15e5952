"""Code for all Kafka clients: properties, errors, requests to the brokers."""
