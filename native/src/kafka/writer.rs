//! Messages in blocks, by the producer that confluent-kafka owns.
//!
//! They carry no opaque pointer, which confluent-kafka would take for one of its own. What becomes of them is known
//! from the interceptor: how many are outstanding, and the contents of those that were lost.

use std::collections::HashMap;
use std::ffi::{CString, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::detached::detached;

use super::client::Client;
use super::columns::{Array, HeaderColumns, Strings};
use super::headers::OwnList;
use super::library::{
    ANY_PARTITION, ARGUMENT_FLAGS, ARGUMENT_HEADERS, ARGUMENT_KEY, ARGUMENT_PARTITION,
    ARGUMENT_TIMESTAMP, ARGUMENT_TOPIC, ARGUMENT_VALUE, Argument, ArgumentBytes, ArgumentValue,
    COPY, Code, INVALID_ARGUMENT, Library, Message, Metadata, OK, PRODUCER, QUEUE_FULL, Rk, Topic,
    UNKNOWN_PARTITION,
};
use super::plugin::{self, lock};

const METADATA_WAIT: c_int = 5000;

/// Index of a message in its block, and why it was refused.
type Refused = (usize, Code);
/// Code, topic, value, key, headers, timestamp of a message that was lost.
type Lost<'py> = (
    Code,
    String,
    Option<Bound<'py, PyBytes>>,
    Option<Bound<'py, PyBytes>>,
    Vec<(String, Option<Bound<'py, PyBytes>>)>,
    i64,
);

/// Writes to one producer of confluent-kafka's.
#[pyclass(frozen, module = "native._native")]
pub struct KafkaWriter {
    client: Arc<Client>,
    partitions: Mutex<HashMap<String, i32>>,
}

#[pymethods]
impl KafkaWriter {
    /// Of the producer that this thread made since `kafka_expect`.
    #[new]
    fn new() -> PyResult<KafkaWriter> {
        let client = plugin::made(PRODUCER).map_err(PyRuntimeError::new_err)?;
        Ok(KafkaWriter {
            client,
            partitions: Mutex::default(),
        })
    }

    /// Hands over the messages from `first` on; where it stopped because the queue is full, else the number of
    /// messages, and those before it that were refused.
    ///
    /// Message i goes to `topics[codes[i]]`, or to the first topic. `values` and `keys` are `Spans`, `headers` is a
    /// `Headers`, timestamps are in milliseconds, at most 0 for now. `partitions` are checked: one that does not exist
    /// is refused, as librdkafka would lose sight of the message.
    #[pyo3(signature = (topics, values, keys=None, headers=None, timestamps=None, codes=None, partitions=None, first=0))]
    #[allow(clippy::too_many_arguments)]
    fn write(
        &self,
        py: Python<'_>,
        topics: Vec<String>,
        values: &Bound<'_, PyAny>,
        keys: Option<&Bound<'_, PyAny>>,
        headers: Option<&Bound<'_, PyAny>>,
        timestamps: Option<&Bound<'_, PyAny>>,
        codes: Option<&Bound<'_, PyAny>>,
        partitions: Option<&Bound<'_, PyAny>>,
        first: usize,
    ) -> PyResult<(usize, Vec<Refused>)> {
        let values = Strings::of(values, "values")?;
        let count = values.len();
        let column =
            |object: Option<&Bound<'_, PyAny>>, name: &str| -> PyResult<Option<Array<i64>>> {
                object
                    .map(|object| Array::<i64>::of(object, name)?.of_length(count, name))
                    .transpose()
            };
        let block = Block {
            keys: keys.map(|keys| Strings::of(keys, "keys")).transpose()?,
            headers: headers
                .map(|headers| HeaderColumns::of(headers, count))
                .transpose()?,
            timestamps: column(timestamps, "timestamps")?,
            codes: column(codes, "codes")?,
            partitions: column(partitions, "partitions")?,
            values,
        };
        block.check(topics.len())?;
        if first >= count {
            return Ok((count, Vec::new()));
        }
        detached(py, || self.hand_over(&topics, &block, first)).map_err(PyRuntimeError::new_err)
    }

    /// How many messages were handed over and are neither acknowledged nor lost.
    #[getter]
    fn outstanding(&self) -> i64 {
        self.client.outstanding()
    }

    /// Takes the messages that were lost. Complete for what was handed over, once nothing is outstanding.
    fn failures<'py>(&self, py: Python<'py>) -> Vec<Lost<'py>> {
        let bytes = |value: Option<Vec<u8>>| value.map(|value| PyBytes::new(py, &value));
        let found = self.client.failures().into_iter().map(|one| {
            let headers = one
                .headers
                .into_iter()
                .map(|(name, value)| (String::from_utf8_lossy(&name).into_owned(), bytes(value)))
                .collect();
            (
                one.code,
                one.topic,
                bytes(one.value),
                bytes(one.key),
                headers,
                one.timestamp,
            )
        });
        found.collect()
    }
}

impl KafkaWriter {
    fn hand_over(
        &self,
        topics: &[String],
        block: &Block,
        first: usize,
    ) -> Result<(usize, Vec<Refused>), &'static str> {
        let library = self.client.library;
        let open = self.client.open();
        let Some(rk) = open.as_ref().map(|open| open.rk) else {
            return Err("the producer is closed");
        };
        // The topics are let go of before the client: `open` lives longest.
        let topics: Vec<Handle> = topics
            .iter()
            .map(|name| Handle::of(library, rk, name))
            .collect();
        let counts: Vec<i32> = match block.partitions {
            Some(_) => topics
                .iter()
                .map(|topic| self.partitions(rk, topic))
                .collect(),
            None => Vec::new(),
        };
        let mut handing_over = self.client.handing_over(block.values.len() - first);
        let (stop, refused) =
            if block.is_plain() && topics.len() == 1 && !topics[0].handle.is_null() {
                in_bulk(library, topics[0].handle, block, first)
            } else {
                one_by_one(library, rk, &topics, &counts, block, first)
            };
        handing_over.taken(stop - first - refused.len());
        Ok((stop, refused))
    }

    /// How many partitions the topic has; none if that cannot be told.
    fn partitions(&self, rk: Rk, topic: &Handle) -> i32 {
        if let Some(count) = lock(&self.partitions).get(&topic.name) {
            return *count;
        }
        let library = self.client.library;
        let mut found: *const Metadata = null();
        // Safety: the client lives; what is returned is read before it is given back.
        let count = unsafe {
            if topic.handle.is_null()
                || (library.metadata)(rk, 0, topic.handle, &mut found, METADATA_WAIT) != OK
                || found.is_null()
            {
                return 0;
            }
            let metadata = &*found;
            let count = if metadata.topic_count == 1 {
                (*metadata.topics).partition_count
            } else {
                0
            };
            (library.metadata_destroy)(found);
            count
        };
        if count > 0 {
            lock(&self.partitions).insert(topic.name.clone(), count);
        }
        count
    }
}

struct Block {
    values: Strings,
    keys: Option<Strings>,
    headers: Option<HeaderColumns>,
    timestamps: Option<Array<i64>>,
    codes: Option<Array<i64>>,
    partitions: Option<Array<i64>>,
}

impl Block {
    fn check(&self, topics: usize) -> PyResult<()> {
        if self
            .keys
            .as_ref()
            .is_some_and(|keys| keys.len() != self.values.len())
        {
            return Err(PyValueError::new_err(
                "there must be as many keys as values",
            ));
        }
        let known = 0..topics as i64;
        let codes = self.codes.as_ref().map_or(&[][..], Array::slice);
        if topics == 0 || codes.iter().any(|code| !known.contains(code)) {
            return Err(PyValueError::new_err("codes must be places in topics"));
        }
        Ok(())
    }

    fn is_plain(&self) -> bool {
        self.headers.is_none()
            && self.timestamps.is_none()
            && self.codes.is_none()
            && self.partitions.is_none()
    }

    fn key(&self, row: usize) -> Option<&[u8]> {
        self.keys.as_ref().and_then(|keys| keys.get(row))
    }

    fn topic(&self, row: usize) -> usize {
        self.codes.as_ref().map_or(0, |codes| {
            usize::try_from(codes.slice()[row]).unwrap_or(usize::MAX)
        })
    }
}

/// A topic of the producer's, held while it is written to.
struct Handle<'a> {
    library: &'a Library,
    name: String,
    handle: Topic,
}

impl<'a> Handle<'a> {
    fn of(library: &'a Library, rk: Rk, name: &str) -> Handle<'a> {
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

fn in_bulk(library: &Library, topic: Topic, block: &Block, first: usize) -> (usize, Vec<Refused>) {
    let count = block.values.len();
    let mut messages: Vec<Message> = (first..count)
        .map(|row| {
            let (payload, len) = parts(block.values.get(row));
            let (key, key_len) = parts(block.key(row));
            Message {
                err: OK,
                rkt: null_mut(),
                partition: ANY_PARTITION,
                payload: payload.cast_mut().cast::<c_void>(),
                len,
                key: key.cast_mut().cast::<c_void>(),
                key_len,
                offset: 0,
                private: null_mut(),
            }
        })
        .collect();
    let mut refused = Vec::new();
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
        return (count, refused);
    }
    for (at, message) in messages.iter().enumerate() {
        match message.err {
            OK => {}
            // From the first that the queue has no room for on, none was taken.
            QUEUE_FULL => return (first + at, refused),
            code => refused.push((first + at, code)),
        }
    }
    (count, refused)
}

fn one_by_one(
    library: &Library,
    rk: Rk,
    topics: &[Handle],
    counts: &[i32],
    block: &Block,
    first: usize,
) -> (usize, Vec<Refused>) {
    let count = block.values.len();
    let mut refused = Vec::new();
    for row in first..count {
        match one(library, rk, topics, counts, block, row) {
            OK => {}
            QUEUE_FULL => return (row, refused),
            code => refused.push((row, code)),
        }
    }
    (count, refused)
}

fn one(
    library: &Library,
    rk: Rk,
    topics: &[Handle],
    counts: &[i32],
    block: &Block,
    row: usize,
) -> Code {
    let topic = block.topic(row);
    let Some(handle) = topics
        .get(topic)
        .map(|topic| topic.handle)
        .filter(|handle| !handle.is_null())
    else {
        return INVALID_ARGUMENT;
    };
    let mut arguments = Arguments::new();
    arguments.add(ARGUMENT_TOPIC, ArgumentValue { pointer: handle });
    arguments.add(ARGUMENT_FLAGS, ArgumentValue { int: COPY });
    arguments.add_bytes(ARGUMENT_VALUE, block.values.get(row));
    arguments.add_bytes(ARGUMENT_KEY, block.key(row));
    if let Some(partitions) = &block.partitions {
        let Some(partition) = i32::try_from(partitions.slice()[row])
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
    if let Some(stamps) = &block.timestamps {
        arguments.add(
            ARGUMENT_TIMESTAMP,
            ArgumentValue {
                i64: stamps.slice()[row].max(0),
            },
        );
    }
    let list = match &block.headers {
        Some(headers) if headers.range(row).1 > 0 => match OwnList::of(library, headers, row) {
            Ok(list) => Some(list),
            Err(code) => return code,
        },
        _ => None,
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

    fn add(&mut self, kind: c_int, value: ArgumentValue) {
        self.all[self.count] = Argument { kind, value };
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
