"""What every client of Kafka needs: properties, errors, questions to the brokers."""
