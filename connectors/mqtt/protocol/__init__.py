"""MQTT 3.1.1 and 5.0 without a socket or a clock, for clients and servers.

`packets`, `properties` and `reasons` define the values, `reading` and `writing` convert single packets from and to
bytes, `topics` knows names and filters; `receiving` is where bytes come in, `scan` and `acknowledgements` take packets
out of them by the batch, `bulk` writes batches.
"""
