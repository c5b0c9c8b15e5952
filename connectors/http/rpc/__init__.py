"""Requests over gRPC: the server, the calls that it answers, and what it reads of their messages."""
