//! MQTT: `core` does it, the rest is Python's view of it; `_native.pyi` says what each name means.

pub mod core;
mod reading;
mod writing;

use pyo3::prelude::*;

/// Adds what Python sees of it.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    reading::register(module)?;
    writing::register(module)
}
