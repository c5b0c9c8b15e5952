//! Messages in blocks, by the producer that confluent-kafka owns.
//!
//! The interceptor (`inflight.rs`) gets their outcomes.

use std::sync::{Arc, Mutex};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use super::client::Client;
use super::inflight::{Chunk, Failure, Mark};
use super::library::{Code, OK, PRODUCER, QUEUE_FULL};
use super::order::Spread;
use super::outgoing::{Outgoing, Rows};
use super::plugin::{self, lock};
use super::produce::{Handle, in_bulk, one_by_one};

const TOO_MANY: &str = "there are too many messages";

/// Index of a message in its block, and why it was refused.
type Refused = (usize, Code);
/// Rows that there was no room for, those refused before, and the marks of the others.
type Written = (Vec<u32>, Vec<Refused>, Vec<Mark>);

/// Writes to one producer of confluent-kafka's.
#[pyclass(frozen, module = "streamer_native._native")]
pub struct KafkaWriter {
    client: Arc<Client>,
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
    /// and the marks by which `finished` will tell of the others.
    ///
    /// Message i goes to `topics[codes[i]]`, or to the first topic, and there to `partitions[i]`, or to the one that its
    /// key chooses. `values` and `keys` are `Spans`, `headers` is a `Headers`, timestamps are in milliseconds, at most 0
    /// for now.
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
        py.detach(|| {
            let order = rows.unwrap_or_else(|| self.order(&topics, &block.rows(), count));
            self.hand_over(&topics, &block, order)
        })
        .map_err(PyRuntimeError::new_err)
    }

    /// How many messages were handed over and are neither acknowledged nor lost.
    #[getter]
    fn outstanding(&self) -> usize {
        self.client.in_flight.outstanding()
    }

    /// Takes the marks whose messages are all acknowledged or lost, and code, mark and row of messages that were lost.
    fn finished(&self, py: Python<'_>) -> (Vec<Mark>, Vec<Failure>) {
        self.client
            .in_flight
            .finished(|| py.detach(|| self.is_reported()))
    }
}

impl KafkaWriter {
    /// Whether the client has been told of all messages that failed before.
    fn is_reported(&self) -> bool {
        let open = self.client.open();
        // Safety: the client lives, as its lock is held. A destroyed client reports no more.
        open.as_ref()
            .is_none_or(|open| unsafe { (self.client.library.outq_len)(open.rk) == 0 })
    }

    fn order(&self, topics: &[String], rows: &Rows<'_>, count: u32) -> Vec<u32> {
        let spread = lock(&self.spread);
        spread
            .as_ref()
            .filter(|spread| *topics == [spread.topic.as_str()] && !rows.names_partitions())
            .and_then(|spread| spread.order(rows))
            .unwrap_or_else(|| (0..count).collect())
    }

    fn hand_over(
        &self,
        topics: &[String],
        block: &Outgoing,
        mut order: Vec<u32>,
    ) -> Result<Written, &'static str> {
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
        let plain = match &topics[..] {
            [topic] if rows.is_plain() && !topic.handle.is_null() => Some(topic.handle),
            _ => None,
        };
        let (mut refused, mut marks) = (Vec::new(), Vec::new());
        let mut done = 0;
        let mut full = false;
        while done < order.len() && !full {
            let (chunk, mut messages) = Chunk::of(&rows, &order[done..]);
            let part = &order[done..done + messages.len()];
            // Safety: the client and its topics are held; the chunk is kept until its messages were reported on.
            let mark = self
                .client
                .hand_over(chunk, &mut messages, part, |messages| unsafe {
                    match plain {
                        Some(topic) => in_bulk(library, topic, messages),
                        None => one_by_one(library, rk, &topics, &rows, part, messages),
                    }
                });
            marks.extend(mark);
            for (message, &row) in messages.iter().zip(part) {
                // From the first that the queue has no room for on, none was taken.
                full |= message.err == QUEUE_FULL;
                if full {
                    break;
                }
                done += 1;
                if message.err != OK {
                    refused.push((row as usize, message.err));
                }
            }
        }
        order.drain(..done);
        Ok((order, refused, marks))
    }
}
