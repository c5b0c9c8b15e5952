"""The two forms in which a `Data` travels: protobuf and JSON."""
