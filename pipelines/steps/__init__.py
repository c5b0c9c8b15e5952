"""Configuration of steps, one file a family.

The registry (`pipelines.plugins.registry`) finds the types in it. All names are listed in `__init__.pyi`, which
`docs/generate.py` writes, and each is imported when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
