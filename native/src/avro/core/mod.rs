//! Avro records to columns, without Python.
#![forbid(unsafe_code)]

pub mod column;
pub mod columns;
pub mod program;
pub mod scan;
pub mod table;
