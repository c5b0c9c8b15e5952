"""Programs that gather JSON records of Kafka into windows of samples: the service, a loop by hand, other frameworks."""
