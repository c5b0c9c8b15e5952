//! Avro records to columns and back: `core` does it, the rest is Python's view of it.

pub mod core;
mod objects;
mod reading;
mod writing;

use pyo3::prelude::*;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    reading::register(module)?;
    writing::register(module)
}
