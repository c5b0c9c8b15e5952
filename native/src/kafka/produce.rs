//! A block of messages into librdkafka's queue: in one call for many, or one by one where they carry more than a value.

use std::ffi::{CString, c_int, c_void};
use std::ptr::{null, null_mut};

use super::headers::OwnList;
use super::library::{
    ANY_PARTITION, ARGUMENT_FLAGS, ARGUMENT_HEADERS, ARGUMENT_KEY, ARGUMENT_OPAQUE,
    ARGUMENT_PARTITION, ARGUMENT_TIMESTAMP, ARGUMENT_TOPIC, ARGUMENT_VALUE, Argument,
    ArgumentBytes, ArgumentValue, COPY, Code, INVALID_ARGUMENT, Library, Message, OK, QUEUE_FULL,
    Rk, Topic, UNKNOWN_PARTITION,
};
use super::marks::written;
use super::outgoing::Rows;

/// Messages that librdkafka is told of in one call: what describes them stays in the processor's cache.
const AT_ONCE: usize = 256;

/// Index of a message in its block, and why it was refused.
pub type Refused = (usize, Code);

/// A topic of the producer's, held while it is written to.
pub struct Handle<'a> {
    library: &'a Library,
    pub name: String,
    pub handle: Topic,
}

impl<'a> Handle<'a> {
    pub fn of(library: &'a Library, rk: Rk, name: &str) -> Handle<'a> {
        // Safety: the client lives, as its lock is held. What librdkafka does not take for a name gives null.
        let handle = CString::new(name).map_or(null_mut(), |name| unsafe {
            (library.topic_new)(rk, name.as_ptr(), null_mut())
        });
        Handle {
            library,
            name: name.to_string(),
            handle,
        }
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

/// The messages of these rows, with a key and a value only, to one topic; at which of them it stopped, as the queue is
/// full, and those before it that were refused.
pub fn in_bulk(
    library: &Library,
    topic: Topic,
    rows: &Rows<'_>,
    order: &[u32],
    mark: u32,
) -> (usize, Vec<Refused>) {
    let mut messages: Vec<Message> = Vec::with_capacity(AT_ONCE.min(order.len()));
    let mut refused = Vec::new();
    for (part, order) in order.chunks(AT_ONCE).enumerate() {
        messages.clear();
        messages.extend(order.iter().map(|row| plain(rows, *row, mark)));
        // Safety: so many messages are there; values and keys are copied, and not written to.
        let taken = unsafe {
            (library.produce_batch)(
                topic,
                ANY_PARTITION,
                COPY,
                messages.as_mut_ptr(),
                messages.len() as c_int,
            )
        };
        if usize::try_from(taken) == Ok(messages.len()) {
            continue;
        }
        for (at, message) in messages.iter().enumerate() {
            match message.err {
                OK => {}
                // From the first that the queue has no room for on, none was taken.
                QUEUE_FULL => return (part * AT_ONCE + at, refused),
                code => refused.push((order[at] as usize, code)),
            }
        }
    }
    (order.len(), refused)
}

fn plain(rows: &Rows<'_>, row: u32, mark: u32) -> Message {
    let (payload, len) = parts(rows.value(row as usize));
    let (key, key_len) = parts(rows.key(row as usize));
    Message {
        err: OK,
        rkt: null_mut(),
        partition: ANY_PARTITION,
        payload: payload.cast_mut().cast::<c_void>(),
        len,
        key: key.cast_mut().cast::<c_void>(),
        key_len,
        offset: 0,
        private: written(mark, row),
    }
}

/// Any messages, likewise. Topics have as many partitions as `counts` says, which is read only where messages say theirs.
pub fn one_by_one(
    library: &Library,
    rk: Rk,
    topics: &[Handle<'_>],
    counts: &[i32],
    rows: &Rows<'_>,
    order: &[u32],
    mark: u32,
) -> (usize, Vec<Refused>) {
    let mut refused = Vec::new();
    let mut arguments = Arguments::new();
    for (at, &row) in order.iter().enumerate() {
        arguments.clear();
        arguments.add(
            ARGUMENT_OPAQUE,
            ArgumentValue {
                pointer: written(mark, row).cast(),
            },
        );
        let row = row as usize;
        match one(library, rk, topics, counts, rows, row, &mut arguments) {
            OK => {}
            QUEUE_FULL => return (at, refused),
            code => refused.push((row, code)),
        }
    }
    (order.len(), refused)
}

fn one(
    library: &Library,
    rk: Rk,
    topics: &[Handle<'_>],
    counts: &[i32],
    rows: &Rows<'_>,
    row: usize,
    arguments: &mut Arguments,
) -> Code {
    let topic = rows.topic(row);
    let Some(handle) = topics
        .get(topic)
        .map(|topic| topic.handle)
        .filter(|handle| !handle.is_null())
    else {
        return INVALID_ARGUMENT;
    };
    arguments.add(ARGUMENT_TOPIC, ArgumentValue { pointer: handle });
    arguments.add(ARGUMENT_FLAGS, ArgumentValue { int: COPY });
    arguments.add_bytes(ARGUMENT_VALUE, rows.value(row));
    arguments.add_bytes(ARGUMENT_KEY, rows.key(row));
    if let Some(partition) = rows.partition(row) {
        let Some(partition) = i32::try_from(partition)
            .ok()
            .filter(|number| *number < counts[topic])
        else {
            return UNKNOWN_PARTITION;
        };
        arguments.add(
            ARGUMENT_PARTITION,
            ArgumentValue {
                i32: partition.max(ANY_PARTITION),
            },
        );
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
    // Safety: the client lives, as its lock is held; values and keys are copied, and not written to.
    unsafe {
        let error = (library.produceva)(rk, arguments.all.as_ptr(), arguments.count);
        if error.is_null() {
            if let Some(list) = list {
                list.taken();
            }
            return OK;
        }
        let code = (library.error_code)(error);
        (library.error_destroy)(error);
        code
    }
}

/// The arguments of one `rd_kafka_produceva`.
struct Arguments {
    all: [Argument; 8],
    count: usize,
}

impl Arguments {
    fn new() -> Arguments {
        Arguments {
            all: [Argument {
                kind: 0,
                value: ArgumentValue { i64: 0 },
            }; 8],
            count: 0,
        }
    }

    /// None, for the next message. What was there is written over: zeros for each message would cost half a kilobyte.
    fn clear(&mut self) {
        self.count = 0;
    }

    fn add(&mut self, kind: c_int, value: ArgumentValue) {
        let next = &mut self.all[self.count];
        next.kind = kind;
        next.value = value;
        self.count += 1;
    }

    fn add_bytes(&mut self, kind: c_int, bytes: Option<&[u8]>) {
        let (start, size) = parts(bytes);
        self.add(
            kind,
            ArgumentValue {
                bytes: ArgumentBytes { start, size },
            },
        );
    }
}

/// Start and size; null for none. An empty string has a start, which is not read.
fn parts(bytes: Option<&[u8]>) -> (*const u8, usize) {
    bytes.map_or((null(), 0), |bytes| (bytes.as_ptr(), bytes.len()))
}
