//! Records in blocks: the partitions of a consumer, forwarded to a queue of our own.

use std::ffi::{CString, c_int};
use std::ptr::null_mut;
use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use super::block::{Block, Chosen, WAITS};
use super::client::{Client, Open};
use super::library::{CONSUMER, Code, Library, Message, OK, Queue, Rk, text};
use super::plugin;

/// Code, topic, partition, offset and text of an error that came in a record's place.
type Trouble = (Code, String, i32, i64, String);
/// Reads the records of one consumer of confluent-kafka's. One thread reads; `close` may come from any.
#[pyclass(frozen, module = "streamer_native._native")]
pub struct KafkaReader {
    client: Arc<Client>,
}

#[pymethods]
impl KafkaReader {
    /// Of the consumer that this thread made since `kafka_expect`.
    #[new]
    fn new() -> PyResult<KafkaReader> {
        let client = plugin::made(CONSUMER).map_err(PyRuntimeError::new_err)?;
        if let Some(open) = client.open().as_mut() {
            open.reading = Some(Reading::new(client.library, open.rk));
        }
        Ok(KafkaReader { client })
    }

    /// From now on the records of this partition come here. Call it before the partition is assigned: records fetched
    /// before would come by the consumer's own queue. Once closed it does nothing, as rebalances go on while it closes.
    fn begin(&self, py: Python<'_>, topic: &str, partition: i32) -> PyResult<()> {
        let name = CString::new(topic)?;
        py.detach(|| self.with(|library, rk, reading| reading.begin(library, rk, name, partition)));
        Ok(())
    }

    /// They do not any more, and those that came and were not taken are dropped.
    fn end(&self, py: Python<'_>, topic: &str, partition: i32) {
        py.detach(|| {
            self.with(|library, _, reading| {
                reading.end(library, topic, partition);
                reading.forget(library, topic, partition);
            })
        });
    }

    /// Records of this partition that came and were not taken are dropped.
    fn forget(&self, py: Python<'_>, topic: &str, partition: i32) {
        py.detach(|| self.with(|library, _, reading| reading.forget(library, topic, partition)));
    }

    /// Waits until `count` more records are here, or so many milliseconds have passed; how many are held then, and the
    /// errors that came with them.
    fn receive(
        &self,
        py: Python<'_>,
        count: usize,
        milliseconds: i32,
    ) -> PyResult<(usize, Vec<Trouble>)> {
        py.detach(|| self.with(|library, _, reading| reading.receive(library, count, milliseconds)))
            .ok_or_else(closed)
    }

    /// How many records have come and were not taken.
    #[getter]
    fn held(&self, py: Python<'_>) -> usize {
        py.detach(|| self.with(|_, _, reading| reading.held.len()))
            .unwrap_or(0)
    }

    /// Payload and key bytes of the records that have come and were not taken.
    #[getter]
    fn held_bytes(&self, py: Python<'_>) -> usize {
        py.detach(|| {
            self.with(|_, _, reading| reading.held.iter().map(|one| size_of_record(*one)).sum())
        })
        .unwrap_or(0)
    }

    /// A block of at most so many records, and about so many bytes, grouped by partition; the rest stays.
    ///
    /// Records of a partition whose offsets do not rise wait for a later block. Their headers are read only if they are
    /// wanted: librdkafka takes a thousand instructions to find that a record has none.
    fn take(
        &self,
        py: Python<'_>,
        max_records: usize,
        max_bytes: usize,
        headers: bool,
    ) -> PyResult<Block> {
        py.detach(|| {
            self.with(|library, _, reading| reading.take(library, max_records, max_bytes, headers))
        })
        .ok_or_else(closed)
    }

    /// Gives everything back, so that the consumer can be closed. Idempotent.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let reading = self
                .client
                .open()
                .as_mut()
                .and_then(|open| open.reading.take());
            if let Some(reading) = reading {
                reading.release(self.client.library);
            }
        });
    }
}

impl KafkaReader {
    /// `None` once it is closed.
    fn with<Found>(&self, work: impl FnOnce(&Library, Rk, &mut Reading) -> Found) -> Option<Found> {
        match self.client.open().as_mut() {
            Some(Open {
                rk,
                reading: Some(reading),
            }) => Some(work(self.client.library, *rk, reading)),
            _ => None,
        }
    }
}

fn closed() -> PyErr {
    PyRuntimeError::new_err("the consumer is closed")
}

/// The reading of one consumer.
pub struct Reading {
    queue: Queue,
    partitions: Vec<(CString, i32, Queue)>,
    held: Vec<*mut Message>,
}

impl Reading {
    fn new(library: &Library, rk: Rk) -> Reading {
        // Safety: the client lives, as its lock is held.
        Reading {
            queue: unsafe { (library.queue_new)(rk) },
            partitions: Vec::new(),
            held: Vec::new(),
        }
    }

    fn begin(&mut self, library: &Library, rk: Rk, topic: CString, partition: i32) {
        if self.place(topic.to_bytes(), partition).is_some() {
            return;
        }
        // Safety: the client lives, and both queues are ours until they are destroyed.
        unsafe {
            let queue = (library.queue_get_partition)(rk, topic.as_ptr(), partition);
            if queue.is_null() {
                return;
            }
            (library.queue_forward)(queue, self.queue);
            self.partitions.push((topic, partition, queue));
        }
    }

    fn end(&mut self, library: &Library, topic: &str, partition: i32) {
        if let Some(at) = self.place(topic.as_bytes(), partition) {
            let (_, _, queue) = self.partitions.swap_remove(at);
            back(library, queue);
        }
    }

    fn place(&self, topic: &[u8], partition: i32) -> Option<usize> {
        self.partitions
            .iter()
            .position(|(name, number, _)| *number == partition && name.to_bytes() == topic)
    }

    fn forget(&mut self, library: &Library, topic: &str, partition: i32) {
        self.held.retain(|&message| {
            // Safety: a held message is ours until it is destroyed.
            unsafe {
                let gone = (*message).partition == partition
                    && text((library.topic_name)((*message).rkt)) == topic;
                if gone {
                    (library.message_destroy)(message);
                }
                !gone
            }
        });
    }

    fn receive(
        &mut self,
        library: &Library,
        count: usize,
        milliseconds: i32,
    ) -> (usize, Vec<Trouble>) {
        let before = self.held.len();
        self.held.reserve(count);
        // Safety: there is room for `count` pointers behind those that are there, and so many are written at most.
        unsafe {
            let end = self.held.as_mut_ptr().add(before);
            let came = (library.consume_batch_queue)(self.queue, milliseconds as c_int, end, count);
            self.held
                .set_len(before + usize::try_from(came).unwrap_or(0).min(count));
        }
        let mut troubles = Vec::new();
        // Safety: as in `forget`.
        if self.held[before..]
            .iter()
            .any(|&message| unsafe { (*message).err } != OK)
        {
            self.held.retain(|&message| unsafe {
                if (*message).err == OK {
                    return true;
                }
                troubles.push(trouble(library, message));
                (library.message_destroy)(message);
                false
            });
        }
        (self.held.len(), troubles)
    }

    fn take(
        &mut self,
        library: &Library,
        max_records: usize,
        max_bytes: usize,
        headers: bool,
    ) -> Block {
        let chosen = Chosen::of(&self.held, max_records, max_bytes);
        let block = chosen.block(library, &self.held, headers);
        let looked_at = chosen.group_of.len();
        let mut kept = 0;
        for at in 0..self.held.len() {
            let message = self.held[at];
            if at < looked_at && chosen.group_of[at] != WAITS {
                // Safety: it is ours, copied, and out of the list when this is done.
                unsafe { (library.message_destroy)(message) };
            } else {
                self.held[kept] = message;
                kept += 1;
            }
        }
        self.held.truncate(kept);
        block
    }

    /// Give everything back: librdkafka would wait for it when the client is destroyed.
    pub fn release(self, library: &Library) {
        for (_, _, queue) in self.partitions {
            back(library, queue);
        }
        // Safety: all of it is ours, and this is the last time that it is touched.
        unsafe {
            for message in self.held {
                (library.message_destroy)(message);
            }
            (library.queue_destroy)(self.queue);
        }
    }
}

fn back(library: &Library, queue: Queue) {
    // Safety: the queue is ours until it is destroyed.
    unsafe {
        (library.queue_forward)(queue, null_mut());
        (library.queue_destroy)(queue);
    }
}

/// # Safety
/// The message is one of librdkafka's that lives.
unsafe fn trouble(library: &Library, message: *mut Message) -> Trouble {
    // Safety: as above.
    unsafe {
        let rkt = (*message).rkt;
        let topic = if rkt.is_null() {
            String::new()
        } else {
            text((library.topic_name)(rkt))
        };
        (
            (*message).err,
            topic,
            (*message).partition,
            (*message).offset,
            text((library.message_errstr)(message)),
        )
    }
}

fn size_of_record(message: *mut Message) -> usize {
    // Safety: a held message is ours until it is destroyed. A null key or payload has no length.
    unsafe { (*message).len + (*message).key_len }
}
