"""Service definitions: the model of a service, reading and checking service files, and the files of a new service."""
