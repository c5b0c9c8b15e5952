//! Plain JSON to columns and back, without Python.
#![forbid(unsafe_code)]

pub mod column;
pub mod columns;
pub mod decimal;
pub mod encode;
pub mod envelope;
pub mod pointer;
pub mod scan;
pub mod stated;
pub mod table;
