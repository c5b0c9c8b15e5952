"""`streamer.definition.loading` under the name that it had: plug-ins and scripts import from here."""

from streamer.definition.loading import load, load_all, loads

__all__ = ["load", "load_all", "loads"]
