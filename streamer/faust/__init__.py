"""The same service inside a Faust app (faust-streaming): `attach` adds it to an app, `app` makes one of it.

Importing this package imports Faust. Needs the extra `faust`.
"""

from pipelines.plugins.requirements import Package, required

required(Package("faust", "faust")).check("streamer.faust")

from streamer.faust.attaching import app, attach  # noqa: E402 - after the check for a missing Faust

__all__ = ["app", "attach"]
