//! Code for the readers and writers of all formats: `core` without Python, the rest is Python's view of it.

pub mod core;
mod found;
mod strings;
mod view;

use pyo3::prelude::*;

pub use found::{Found, take_apart};
pub use view::{View, ViewedSpans};

/// Bytes of a batch from which on other threads may run meanwhile. To wait for the interpreter again may take longer
/// than the work on less.
pub const WORTH_DETACHING: usize = 4 << 20;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    strings::register(module)
}
