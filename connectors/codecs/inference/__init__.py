"""Requests and answers of the Open Inference Protocol (KServe v2): JSON, JSON with binary tensors, gRPC's messages."""
