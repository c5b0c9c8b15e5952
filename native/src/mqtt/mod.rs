//! MQTT: `core` does the work, the rest is Python's view of it; `_native.pyi` documents the names.

pub mod core;
mod reading;
mod writing;

use pyo3::prelude::*;

/// Adds its classes and functions to the Python module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    reading::register(module)?;
    writing::register(module)
}
