//! What the modules under test import as `crate::columnar`.

#[path = "../../src/columnar/core/mod.rs"]
pub mod core;
