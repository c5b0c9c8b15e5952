"""Traces: which records are sampled, and the spans of batches and records for a collector of OpenTelemetry."""
