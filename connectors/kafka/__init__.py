"""Kafka: source, sink and their configuration."""
