"""The compiled hot path, `streamer_native._native`, if it was built; `pipelines.hotpath` says whether it is used.

Its sources are in the folder `native/` of the source tree. Nothing here imports anything else of this project.
"""
