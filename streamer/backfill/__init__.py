"""A service's pipeline over files, without a broker: `streamer backfill`, docs/backfill.md."""
