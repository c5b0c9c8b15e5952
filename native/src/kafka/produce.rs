//! A block of messages into librdkafka's queue: in one call for many, or one by one where they carry more than a value.

use std::ffi::{CString, c_int};
use std::ptr::null_mut;

use super::headers::OwnList;
use super::library::{
    ANY_PARTITION, ARGUMENT_FLAGS, ARGUMENT_HEADERS, ARGUMENT_KEY, ARGUMENT_PARTITION,
    ARGUMENT_TIMESTAMP, ARGUMENT_TOPIC, ARGUMENT_VALUE, Argument, ArgumentBytes, ArgumentValue,
    Code, FATAL, INVALID_ARGUMENT, Library, Message, OK, QUEUE_FULL, Rk, Topic,
};
use super::outgoing::Rows;

/// Payloads are neither copied (`RD_KAFKA_MSG_F_COPY`) nor freed (`RD_KAFKA_MSG_F_FREE`) by librdkafka; keys are copied.
const NO_COPY: c_int = 0;

/// A topic of the producer's, held while it is written to.
pub struct Handle<'a> {
    library: &'a Library,
    pub handle: Topic,
}

impl<'a> Handle<'a> {
    pub fn of(library: &'a Library, rk: Rk, name: &str) -> Handle<'a> {
        // Safety: the client lives, as its lock is held. A text that is no name for librdkafka gives null.
        let handle = CString::new(name).map_or(null_mut(), |name| unsafe {
            (library.topic_new)(rk, name.as_ptr(), null_mut())
        });
        Handle { library, handle }
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // Safety: it is ours.
            unsafe { (self.library.topic_destroy)(self.handle) }
        }
    }
}

/// Hands over messages with a key and a value only, to one topic. The outcome of each is in its `err`.
///
/// # Safety
/// The topic is held. Payloads stay where they are until librdkafka has reported on their messages.
pub unsafe fn in_bulk(library: &Library, topic: Topic, messages: &mut [Message]) {
    // Safety: as above, and so many messages are there.
    unsafe {
        (library.produce_batch)(
            topic,
            ANY_PARTITION,
            NO_COPY,
            messages.as_mut_ptr(),
            messages.len() as c_int,
        );
    }
}

/// Any messages, likewise: those of the rows `order`.
///
/// # Safety
/// The client lives. Payloads stay where they are until librdkafka has reported on their messages.
pub unsafe fn one_by_one(
    library: &Library,
    rk: Rk,
    topics: &[Handle<'_>],
    rows: &Rows<'_>,
    order: &[u32],
    messages: &mut [Message],
) {
    let mut arguments = Arguments::new();
    let mut full = false;
    for (message, &row) in messages.iter_mut().zip(order) {
        if full {
            // Messages after the first that there was no room for would overtake it.
            message.err = QUEUE_FULL;
            continue;
        }
        // Safety: as above.
        message.err = unsafe {
            let row = row as usize;
            one(library, rk, topics, rows, row, message, &mut arguments)
        };
        full = message.err == QUEUE_FULL;
    }
}

/// # Safety
/// As for `one_by_one`.
unsafe fn one(
    library: &Library,
    rk: Rk,
    topics: &[Handle<'_>],
    rows: &Rows<'_>,
    row: usize,
    message: &Message,
    arguments: &mut Arguments,
) -> Code {
    let Some(handle) = topics
        .get(rows.topic(row))
        .map(|topic| topic.handle)
        .filter(|handle| !handle.is_null())
    else {
        return INVALID_ARGUMENT;
    };
    arguments.clear();
    arguments.add(ARGUMENT_TOPIC, ArgumentValue { pointer: handle });
    arguments.add(ARGUMENT_FLAGS, ArgumentValue { int: NO_COPY });
    arguments.add_bytes(ARGUMENT_VALUE, message.payload.cast(), message.len);
    arguments.add_bytes(ARGUMENT_KEY, message.key.cast(), message.key_len);
    if let Some(number) = rows.partition(row) {
        arguments.add(ARGUMENT_PARTITION, ArgumentValue { int: number });
    }
    if let Some(stamp) = rows.timestamp(row) {
        arguments.add(ARGUMENT_TIMESTAMP, ArgumentValue { i64: stamp });
    }
    let list = match rows.headers(row) {
        Some(headers) => match OwnList::of(library, headers) {
            Ok(list) => Some(list),
            Err(code) => return code,
        },
        None => None,
    };
    if let Some(list) = &list {
        arguments.add(
            ARGUMENT_HEADERS,
            ArgumentValue {
                pointer: list.list(),
            },
        );
    }
    // Safety: as above; keys are copied, and not written to.
    unsafe {
        let error = (library.produceva)(rk, arguments.all.as_ptr(), arguments.count);
        if error.is_null() {
            if let Some(list) = list {
                list.taken();
            }
            return OK;
        }
        // A fatal one has the code of its reason.
        let code = match (library.error_is_fatal)(error) {
            0 => (library.error_code)(error),
            _ => FATAL,
        };
        (library.error_destroy)(error);
        code
    }
}

/// The arguments of one `rd_kafka_produceva`.
struct Arguments {
    all: [Argument; 7],
    count: usize,
}

impl Arguments {
    fn new() -> Arguments {
        Arguments {
            all: [Argument {
                kind: 0,
                value: ArgumentValue { i64: 0 },
            }; 7],
            count: 0,
        }
    }

    /// None, for the next message. Old ones are written over: zeros for each message would cost half a kilobyte.
    fn clear(&mut self) {
        self.count = 0;
    }

    fn add(&mut self, kind: c_int, value: ArgumentValue) {
        let next = &mut self.all[self.count];
        next.kind = kind;
        next.value = value;
        self.count += 1;
    }

    fn add_bytes(&mut self, kind: c_int, start: *const u8, size: usize) {
        self.add(
            kind,
            ArgumentValue {
                bytes: ArgumentBytes { start, size },
            },
        );
    }
}
