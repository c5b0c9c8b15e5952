//! ProtoData without Python: many messages in one buffer to columns, and columns to messages in one buffer.
//!
//! The reader says of a message that it is *plain* only if it understood every byte of it as protobuf does. What is not
//! plain is not judged here: the caller leaves it to protobuf, message by message. So an oversight in this module may
//! cost time, but what protobuf accepts and refuses is protobuf's to say.

#![forbid(unsafe_code)]

pub mod column;
pub mod columns;
pub mod encode;
pub mod mould;
pub mod schema;
pub mod table;
pub mod value;
pub mod wire;
