//! The Open Inference Protocol: `core` takes requests apart, the rest is Python's view of that and of answers.

pub mod core;
mod reading;
mod writing;

use pyo3::prelude::*;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    reading::register(module)?;
    writing::register(module)
}
