//! Messages in blocks, by the producer that confluent-kafka owns.
//!
//! They carry no opaque pointer, which confluent-kafka would take for one of its own. What becomes of them is known
//! from the interceptor: how many are outstanding, and the contents of those that were lost.

use std::collections::HashMap;
use std::ffi::c_int;
use std::ptr::null;
use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::detached::detached;

use super::client::Client;
use super::library::{Code, Metadata, OK, PRODUCER, Rk};
use super::outgoing::Outgoing;
use super::plugin::{self, lock};
use super::produce::{Handle, Refused, in_bulk, one_by_one};

const METADATA_WAIT: c_int = 5000;

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
        let numbers = [timestamps, codes, partitions];
        let block = Outgoing::of(values, keys, headers, numbers, topics.len())?;
        let count = block.len();
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
        block: &Outgoing,
        first: usize,
    ) -> Result<(usize, Vec<Refused>), &'static str> {
        let library = self.client.library;
        let open = self.client.open();
        let Some(rk) = open.as_ref().map(|open| open.rk) else {
            return Err("the producer is closed");
        };
        let rows = block.rows();
        // The topics are let go of before the client: `open` lives longest.
        let topics: Vec<Handle> = topics
            .iter()
            .map(|name| Handle::of(library, rk, name))
            .collect();
        let counts: Vec<i32> = if rows.has_partitions() {
            topics
                .iter()
                .map(|topic| self.partitions(rk, topic))
                .collect()
        } else {
            Vec::new()
        };
        let mut handing_over = self.client.handing_over(rows.len() - first);
        let (stop, refused) = match &topics[..] {
            [topic] if rows.is_plain() && !topic.handle.is_null() => {
                in_bulk(library, topic.handle, &rows, first)
            }
            _ => one_by_one(library, rk, &topics, &counts, &rows, first),
        };
        handing_over.taken(stop - first - refused.len());
        Ok((stop, refused))
    }

    /// How many partitions the topic has; none if that cannot be told.
    fn partitions(&self, rk: Rk, topic: &Handle<'_>) -> i32 {
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
