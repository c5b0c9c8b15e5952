"""What users are shown of services that answer requests: where they answer, what they take, and a first request."""
