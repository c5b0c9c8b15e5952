"""The connector contract as tests for every source and sink, ours and those of plug-ins.

A connector's test module derives a class and a bus, which feeds the source and reads the messages of the sink:

    class TestMyBusSource(SourceContract):
        cannot = {"headers": "the bus has none"}

        @pytest.fixture
        def bus(self) -> SourceBus:
            return MyBus(...)

Needs pytest. Tests that need a capability named in `cannot` do not exist in the class; its values are the reasons.
"""

import pytest

# Before the modules are imported, so that their failed assertions show the compared values.
for _module in (
    "reader",
    "source",
    "delivery",
    "sink",
    "faults",
    "measures",
    "perishable",
    "roundtrip",
    "session",
    "transaction",
    "codec",
    "cycles",
):
    pytest.register_assert_rewrite(f"connectors.contract.{_module}")

from connectors.contract.bus import LiveBus, LoopBus, SessionBus, SinkBus, SourceBus  # noqa: E402
from connectors.contract.capabilities import CAPABILITIES, Contract, needs  # noqa: E402
from connectors.contract.codec import CodecContract  # noqa: E402
from connectors.contract.perishable import PerishableContract  # noqa: E402
from connectors.contract.reader import Reader, Received  # noqa: E402
from connectors.contract.roundtrip import RoundTripContract  # noqa: E402
from connectors.contract.session import SessionContract  # noqa: E402
from connectors.contract.sink import SinkContract  # noqa: E402
from connectors.contract.source import SourceContract  # noqa: E402
from connectors.contract.transaction import TransactionBus, TransactionContract  # noqa: E402

__all__ = [
    "CAPABILITIES",
    "CodecContract",
    "Contract",
    "LiveBus",
    "LoopBus",
    "PerishableContract",
    "Reader",
    "Received",
    "RoundTripContract",
    "SessionBus",
    "SessionContract",
    "SinkBus",
    "SinkContract",
    "SourceBus",
    "SourceContract",
    "TransactionBus",
    "TransactionContract",
    "needs",
]
