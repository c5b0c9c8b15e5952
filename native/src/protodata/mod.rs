//! ProtoData messages to columns and back: `core` does it, the rest is Python's view of it.

mod arena;
pub mod core;
mod python;
mod view;

pub use python::register;
