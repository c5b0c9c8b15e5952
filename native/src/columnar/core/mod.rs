//! Code for all formats, without Python: strings in one buffer, the values of one key in many records, and the block
//! of bytes that columns are laid out in.
#![forbid(unsafe_code)]

pub mod block;
pub mod cells;
pub mod entries;
pub mod places;
pub mod spans;
pub mod strings;
