//! ProtoData messages to columns and back: `core` does it, the rest is Python's view of it.

#[cfg(target_endian = "big")]
compile_error!(
    "arrays travel little-endian and are copied as they are; plain Python turns them round"
);

pub mod core;
mod python;
mod view;
mod writing;

pub use python::{WORTH_DETACHING, register};
pub use view::View;
