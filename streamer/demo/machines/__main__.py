"""The machines of the sensors example, for a service that runs by itself.

    python -m streamer.demo.machines --broker localhost:1883

They publish until Ctrl-C. After a minute the first of four develops a fault.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import uuid

from pipelines.errors import StreamerError
from streamer.demo.machines.gateway import Gateway, publisher
from streamer.demo.machines.hall import WINDOWS, Hall, plan

UNTIL_FAULTS = 60.0
"""Seconds until the first fault begins."""
LONGEST = 10**12


def main() -> int:
    """Publish; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m streamer.demo.machines", description="The machines of the sensors example; Ctrl-C stops them."
    )
    default = os.environ.get("MQTT_BROKER", "localhost:1883")
    parser.add_argument("--broker", default=default, metavar="HOST:PORT", help="by default $MQTT_BROKER, else here")
    arguments = parser.parse_args()
    faults = plan(5 * UNTIL_FAULTS)
    hall = Hall(faults)
    sink = publisher(f"mqtt://{arguments.broker}", f"machines-{uuid.uuid4().hex[:8]}")
    try:
        sink.open()
        if (why := sink.down()) is not None:
            raise StreamerError(f"{arguments.broker} cannot be reached: {why}; streamer broker --mqtt starts one")
        print(f"{len(hall.places)} machines publish to {arguments.broker}; Ctrl-C stops them", file=sys.stderr)
        gateway = Gateway(sink, hall, None, rate=WINDOWS * len(hall.places), total=LONGEST)
        gateway.start()
        began = time.monotonic()
        while not gateway.done:
            while faults and time.monotonic() - began >= faults[0].begins:
                failing = faults.pop(0)
                print(f"{failing.machine} develops a fault: {failing.fault}", file=sys.stderr)
            time.sleep(0.2)
    except KeyboardInterrupt:
        return 0
    except StreamerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        sink.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
