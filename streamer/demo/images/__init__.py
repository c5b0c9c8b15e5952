"""`streamer demo digits`: images on a topic of Kafka, predictions on another."""
