"""`cloudevents`: payloads that are CloudEvents 1.0, structured as JSON or binary with attributes in headers."""
