//! A message that was lost, by its contents: it carries nothing by which it could be told from others.

use std::ffi::c_int;

use super::headers::{self, Header};
use super::library::{Code, Library, Message, text};

pub struct Failure {
    pub code: Code,
    pub topic: String,
    pub value: Option<Vec<u8>>,
    pub key: Option<Vec<u8>>,
    pub headers: Vec<Header>,
    pub timestamp: i64,
}

impl Failure {
    pub fn of(library: &Library, message: &Message) -> Failure {
        let mut kind: c_int = 0;
        // Safety: the message is librdkafka's, and lives for the duration of the call.
        unsafe {
            Failure {
                code: message.err,
                topic: text((library.topic_name)(message.rkt)),
                value: copied(message.payload.cast(), message.len),
                key: copied(message.key.cast(), message.key_len),
                headers: headers::copied(library, message),
                timestamp: (library.message_timestamp)(message, &mut kind),
            }
        }
    }
}

/// # Safety
/// `start` is null, or there are `size` bytes.
pub unsafe fn copied(start: *const u8, size: usize) -> Option<Vec<u8>> {
    // Safety: as above.
    (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start, size) }.to_vec())
}
