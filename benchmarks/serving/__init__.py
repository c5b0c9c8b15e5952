"""What an answer over HTTP and gRPC costs, beside FastAPI, MLServer and bare servers."""
