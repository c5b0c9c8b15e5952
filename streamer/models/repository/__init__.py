"""A folder of models that are loaded and unloaded while it is served: each is a service of the process."""
