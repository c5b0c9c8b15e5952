//! Requests of the Open Inference Protocol: `core` takes them apart, the rest is Python's view of it.

pub mod core;
mod reading;

use pyo3::prelude::*;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    reading::register(module)
}
