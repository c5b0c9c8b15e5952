"""The core: records as typed values, batches in columns, pipelines of steps. No bus, no HTTP, light to import.

All names are listed in `__init__.pyi`, and each is imported when it is first used: a program that needs nothing but
`Data` loads no steps and no readers of definitions.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
