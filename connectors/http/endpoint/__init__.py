"""Requests over HTTP and gRPC as records, and answers to them."""
