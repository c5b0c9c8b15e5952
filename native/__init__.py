"""The compiled hot path, `native._native`, if it was built; `pipelines.hotpath` says whether it is used.

Its sources are in `src/`. Nothing here imports anything else of this project.
"""
