"""The core: records as typed values, batches in columns, pipelines of steps. No bus, no HTTP, light to import."""
