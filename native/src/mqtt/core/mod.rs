//! MQTT without Python: messages out of the bytes of a connection, messages and acknowledgements into bytes.
//!
//! The scans take a packet only if they understood all of it as `connectors/mqtt/protocol/reading.py` does, and stop at
//! any other. Unusual or wrong packets are not judged here: the caller leaves them to the reader in Python.

#![forbid(unsafe_code)]

pub mod acks;
pub mod packet;
pub mod properties;
pub mod publish;
pub mod scan;
