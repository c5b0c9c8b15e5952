//! The Kafka bridge: records in blocks out of, and messages in blocks into, the clients that confluent-kafka owns.
//!
//! confluent-kafka creates, configures and secures the clients, and keeps groups, commits, transactions, logs and
//! callbacks. This library is also loaded into them as a plug-in (`plugin.rs`), so that it learns their handles; the
//! functions of librdkafka are found at run time in the library that confluent-kafka brings (`library.rs`).

mod block;
mod client;
mod headers;
mod inflight;
mod library;
mod order;
mod outgoing;
mod plugin;
mod produce;
mod reader;
mod writer;

use pyo3::prelude::*;

/// Adds the bridge's classes and functions to the Python module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(kafka_load, module)?)?;
    module.add_function(wrap_pyfunction!(kafka_expect, module)?)?;
    module.add_class::<reader::KafkaReader>()?;
    module.add_class::<writer::KafkaWriter>()
}

/// Finds librdkafka's functions behind the loaded library at `path`; its version, and whether it can load plug-ins.
#[pyfunction]
fn kafka_load(path: &str) -> PyResult<(u32, bool)> {
    let found = library::load(path).map_err(pyo3::exceptions::PyOSError::new_err)?;
    Ok((found.version(), found.has_plugins()))
}

/// The next client that this thread makes with this plug-in is the one that `KafkaReader` or `KafkaWriter` will take.
#[pyfunction]
fn kafka_expect(producer: bool) {
    plugin::expect(producer);
}
