"""Sources, sinks and payload codecs. Importing this loads no client library."""
