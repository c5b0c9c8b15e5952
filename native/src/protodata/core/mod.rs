//! ProtoData without Python: many messages in one buffer to columns, and columns to messages in one buffer.
//!
//! The reader calls a message *plain* only if it understood every byte of it as protobuf does. Other messages are not
//! judged here: the caller leaves them to protobuf, message by message. So an oversight in this module may cost time,
//! but protobuf alone decides which messages are accepted.

#![forbid(unsafe_code)]

pub mod column;
pub mod columns;
pub mod encode;
pub mod mould;
pub mod schema;
pub mod table;
pub mod value;
pub mod wire;
