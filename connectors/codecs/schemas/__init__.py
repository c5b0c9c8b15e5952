"""Codecs whose payloads follow a schema, from a file or from a schema registry: Avro, JSON Schema and protobuf."""
