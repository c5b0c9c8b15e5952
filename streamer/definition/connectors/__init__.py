"""The sources and sinks in a service's definition: how their fields are read, and all of them in one list."""
