"""For every Kafka client: properties, errors, requests to the brokers."""
