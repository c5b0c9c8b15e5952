//! Avro records to columns and back, without Python.
#![forbid(unsafe_code)]

pub mod column;
pub mod columns;
pub mod encode;
pub mod program;
pub mod scan;
pub mod table;
