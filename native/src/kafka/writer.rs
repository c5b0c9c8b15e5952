//! Messages in blocks, by the producer that confluent-kafka owns.
//!
//! What becomes of them is known from the interceptor, by the marks that they carry (`marks.rs`).

use std::collections::HashMap;
use std::ffi::c_int;
use std::ptr::null;
use std::sync::{Arc, Mutex};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::detached::detached;

use super::client::Client;
use super::library::{Metadata, OK, PRODUCER, Rk};
use super::marks::Failure;
use super::order::Spread;
use super::outgoing::{Outgoing, Rows};
use super::plugin::{self, lock};
use super::produce::{Handle, Refused, in_bulk, one_by_one};

const METADATA_WAIT: c_int = 5000;
const TOO_MANY: &str = "there are too many messages";

/// Rows that there was no room for, those refused before, and the mark of the others; 0 if there are none.
type Written = (Vec<u32>, Vec<Refused>, u32);

/// Writes to one producer of confluent-kafka's.
#[pyclass(frozen, module = "native._native")]
pub struct KafkaWriter {
    client: Arc<Client>,
    partitions: Mutex<HashMap<String, i32>>,
    spread: Mutex<Option<Spread>>,
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
            spread: Mutex::default(),
        })
    }

    /// This topic has so many partitions, among which librdkafka chooses as its property `partitioner` says. It need
    /// not be right: messages that go to one partition are handed over together, which is cheaper.
    fn foresee(&self, topic: String, partitions: i32, partitioner: &str) {
        *lock(&self.spread) = Spread::of(self.client.library, topic, partitions, partitioner);
    }

    /// Hands over the messages of these rows, in this order (by default of all, in an order that is cheap and keeps that
    /// of each key); the rows that the queue had no room for, in the order to go on with, those refused before,
    /// and the mark by which `finished` will tell of the others: 0 if there are none.
    ///
    /// Message i goes to `topics[codes[i]]`, or to the first topic. `values` and `keys` are `Spans`, `headers` is a
    /// `Headers`, timestamps are in milliseconds, at most 0 for now. `partitions` are checked: one that does not exist
    /// is refused, as librdkafka would lose sight of the message.
    #[pyo3(signature = (topics, values, keys=None, headers=None, timestamps=None, codes=None, partitions=None, rows=None))]
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
        rows: Option<Vec<u32>>,
    ) -> PyResult<Written> {
        let numbers = [timestamps, codes, partitions];
        let block = Outgoing::of(values, keys, headers, numbers, topics.len())?;
        let count = u32::try_from(block.len()).map_err(|_| PyValueError::new_err(TOO_MANY))?;
        if rows.iter().flatten().any(|row| *row >= count) {
            return Err(PyValueError::new_err("there are no such rows"));
        }
        detached(py, || {
            let order = rows.unwrap_or_else(|| self.order(&topics, &block.rows(), count));
            self.hand_over(&topics, &block, order)
        })
        .map_err(PyRuntimeError::new_err)
    }

    /// How many messages were handed over and are neither acknowledged nor lost.
    #[getter]
    fn outstanding(&self) -> i64 {
        self.client.marks.outstanding()
    }

    /// Takes the marks whose messages are all acknowledged or lost, and code, mark and row of messages that were lost.
    fn finished(&self) -> (Vec<u32>, Vec<Failure>) {
        self.client.marks.finished()
    }
}

impl KafkaWriter {
    fn order(&self, topics: &[String], rows: &Rows<'_>, count: u32) -> Vec<u32> {
        let spread = lock(&self.spread);
        spread
            .as_ref()
            .filter(|spread| *topics == [spread.topic.as_str()] && !rows.has_partitions())
            .and_then(|spread| spread.order(rows))
            .unwrap_or_else(|| (0..count).collect())
    }

    fn hand_over(
        &self,
        topics: &[String],
        block: &Outgoing,
        mut order: Vec<u32>,
    ) -> Result<Written, &'static str> {
        if order.is_empty() {
            return Ok((order, Vec::new(), 0));
        }
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
        let count = u32::try_from(order.len()).map_err(|_| TOO_MANY)?;
        let Some(mut handing_over) = self.client.handing_over(count) else {
            return Ok((order, Vec::new(), 0));
        };
        let mark = handing_over.mark;
        let (stop, refused) = match &topics[..] {
            [topic] if rows.is_plain() && !topic.handle.is_null() => {
                in_bulk(library, topic.handle, &rows, &order, mark)
            }
            _ => one_by_one(library, rk, &topics, &counts, &rows, &order, mark),
        };
        let taken = (stop - refused.len()) as u32;
        handing_over.taken(taken);
        order.drain(..stop);
        Ok((order, refused, if taken > 0 { mark } else { 0 }))
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
