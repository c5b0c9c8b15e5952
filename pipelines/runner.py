"""`pipelines.runners.runner` under the name that it had: plug-ins and scripts import from here."""

from pipelines.runners.runner import ContractError, OpenContext, RowRunner, Runner, StatefulRunner

__all__ = ["ContractError", "OpenContext", "RowRunner", "Runner", "StatefulRunner"]
