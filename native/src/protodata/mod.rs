//! ProtoData messages to columns and back: `core` does it, the rest is Python's view of it.

#[cfg(target_endian = "big")]
compile_error!(
    "arrays travel little-endian and are copied as they are; plain Python turns them round"
);

pub mod core;
mod reading;
mod writing;

use pyo3::prelude::*;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    reading::register(module)?;
    writing::register(module)
}
