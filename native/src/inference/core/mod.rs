//! Requests in bytes. `None` means: not plain enough, or broken; the Python path decides, and has the error's text.

#![forbid(unsafe_code)]

pub mod numbers;
pub mod request;
