"""`Worker`: what a process does differently that a parent has started as one of its workers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from streamer.definition.service import Service
from streamer.workers.addresses import Address, tell_addresses
from streamer.workers.division import for_worker
from streamer.workers.layout import PAGES_VARIABLE, WORKER_VARIABLE


class Worker:
    """One of several processes that run the same services."""

    def __init__(self, number: int, pages: Path) -> None:
        """`pages` is the file that it shares with its parent."""
        self._number = number
        self._pages = pages
        self._addresses: dict[str, Address] = {}

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> Worker | None:
        """This process, if it is one; else `None`."""
        number, pages = environment.get(WORKER_VARIABLE, ""), environment.get(PAGES_VARIABLE)
        return cls(int(number), Path(pages)) if pages and number.isdecimal() else None

    def share_of(self, service: Service) -> Service:
        """The service as this process runs it."""
        return for_worker(service, self._number)

    @staticmethod
    def die() -> NoReturn:
        """End by a signal, for the parent to start another process: this one cannot go on, and another may."""
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.abort()

    def tell_address(self, service: str, address: Address | None) -> None:
        """Tell the parent the control port of a service that has started."""
        if address is not None:
            self._addresses[service] = address
            tell_addresses(self._pages, self._number, self._addresses)
