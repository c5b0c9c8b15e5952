"""Services that take records from a message bus, run a pipeline on them and publish the results."""
