//! The compiled hot path (`docs/native.md`), behind the same interface as the plain Python one.

mod arena;
mod avro;
mod columnar;
mod columns;
mod inference;
mod json;
mod kafka;
mod memory;
mod protodata;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<memory::Block>()?;
    avro::register(module)?;
    columnar::register(module)?;
    inference::register(module)?;
    json::register(module)?;
    kafka::register(module)?;
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add("SOURCES", env!("STREAMER_SOURCES"))?;
    protodata::register(module)?;
    Ok(())
}
