"""`pipelines.plugins.registry` under the name that it had: plug-ins and scripts import from here."""

from pipelines.plugins.registry import Factory, Registry, RegistryError, RunnerFactory, default_registry

__all__ = ["Factory", "Registry", "RegistryError", "RunnerFactory", "default_registry"]
