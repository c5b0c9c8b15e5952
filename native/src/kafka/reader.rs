//! Records in blocks: the partitions of a consumer, forwarded to a queue of our own.

use std::ffi::{CString, c_int};
use std::ptr::null_mut;
use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use super::client::{Client, Open};
use super::headers;
use super::library::{CONSUMER, Code, HeaderList, Library, Message, OK, Queue, Rk, Topic, text};
use super::memory::{KafkaMemory, Memory};
use super::plugin;

/// int64 columns of a block: positions, timestamps, starts and lengths of values and of keys.
const COLUMNS: usize = 6;
const WORD: usize = 8;

/// Code, topic, partition and text of an error that came in a record's place.
type Trouble = (Code, String, i32, String);
/// A partition's rows in a block: topic, partition, first row, row after the last, first and last position.
type Group = (String, i32, usize, usize, i64, i64);
/// Memory, rows, sizes of all values, keys, names and values of headers, number of keys, of headers, groups.
type Block = (KafkaMemory, usize, [usize; 4], usize, usize, Vec<Group>);

/// Reads the records of one consumer of confluent-kafka's. One thread reads; `close` may come from any.
#[pyclass(frozen, module = "native._native")]
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

    /// From now on the records of this partition come here. Before it is assigned: what is fetched until then would
    /// come by the consumer's own queue. Nothing happens once it is closed, while which rebalances go on.
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

    /// A block of at most so many records, and about so many bytes, grouped by partition; what is left stays.
    ///
    /// Records of a partition whose offsets do not rise wait for a later block.
    fn take(&self, py: Python<'_>, max_records: usize, max_bytes: usize) -> PyResult<Block> {
        py.detach(|| self.with(|library, _, reading| reading.take(library, max_records, max_bytes)))
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

/// What is read from one consumer.
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
            // Safety: what is held is ours until it is destroyed.
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

    fn take(&mut self, library: &Library, max_records: usize, max_bytes: usize) -> Block {
        let chosen = Chosen::of(&self.held, max_records, max_bytes);
        let block = chosen.block(library, &self.held);
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
            text((library.message_errstr)(message)),
        )
    }
}

fn size_of_record(message: *mut Message) -> usize {
    // Safety: what is held is ours until it is destroyed. What is null has no length.
    unsafe { (*message).len + (*message).key_len }
}

const WAITS: u32 = u32::MAX;

/// Which of the messages become a block, and to which of its groups each belongs.
struct Chosen {
    group_of: Vec<u32>,
    groups: Vec<Part>,
    value_bytes: usize,
    key_bytes: usize,
    keys: usize,
}

struct Part {
    topic: Topic,
    partition: i32,
    first: i64,
    last: i64,
    count: usize,
    stopped: bool,
}

impl Chosen {
    fn of(held: &[*mut Message], max_records: usize, max_bytes: usize) -> Chosen {
        let limit = max_records.min(held.len());
        let mut chosen = Chosen {
            group_of: Vec::with_capacity(limit),
            groups: Vec::new(),
            value_bytes: 0,
            key_bytes: 0,
            keys: 0,
        };
        let mut at = 0;
        for &message in &held[..limit] {
            // Safety: what is held is ours until it is destroyed.
            let message = unsafe { &*message };
            at = chosen.find(message, at);
            let part = &mut chosen.groups[at];
            part.stopped |= part.count > 0 && message.offset <= part.last;
            if part.stopped {
                chosen.group_of.push(WAITS);
                continue;
            }
            part.last = message.offset;
            part.count += 1;
            chosen.group_of.push(at as u32);
            if !message.payload.is_null() {
                chosen.value_bytes += message.len;
            }
            if !message.key.is_null() {
                chosen.keys += 1;
                chosen.key_bytes += message.key_len;
            }
            if chosen.value_bytes + chosen.key_bytes >= max_bytes {
                break;
            }
        }
        chosen
    }

    fn find(&mut self, message: &Message, likely: usize) -> usize {
        let is = |part: &Part| part.partition == message.partition && part.topic == message.rkt;
        // What was fetched together comes together.
        if self.groups.get(likely).is_some_and(is) {
            return likely;
        }
        self.groups.iter().position(is).unwrap_or_else(|| {
            self.groups.push(Part {
                topic: message.rkt,
                partition: message.partition,
                first: message.offset,
                last: message.offset,
                count: 0,
                stopped: false,
            });
            self.groups.len() - 1
        })
    }

    /// The messages in the order of their rows.
    fn rows(&self, held: &[*mut Message]) -> Vec<*mut Message> {
        let mut next = 0;
        let mut starts: Vec<usize> = Vec::with_capacity(self.groups.len());
        for part in &self.groups {
            starts.push(next);
            next += part.count;
        }
        let mut rows = vec![null_mut(); next];
        for (&message, &group) in held.iter().zip(&self.group_of) {
            if group != WAITS {
                let place = &mut starts[group as usize];
                rows[*place] = message;
                *place += 1;
            }
        }
        rows
    }

    fn block(&self, library: &Library, held: &[*mut Message]) -> Block {
        let rows = self.rows(held);
        // Safety: what is held is ours until it is destroyed, which is after this.
        let headers = unsafe { HeaderSizes::of(library, &rows) };
        let count = rows.len();
        let words = COLUMNS * count + headers.words(count);
        let sizes = [
            self.value_bytes,
            self.key_bytes,
            headers.name_bytes,
            headers.value_bytes,
        ];
        let mut memory = Memory::new(WORD * words + sizes.iter().sum::<usize>());
        let start = memory.start();
        // Safety: the layout below adds up to the size just asked for: columns first, so that they are aligned, then
        // the bytes of values, of keys, of headers.
        unsafe {
            let columns = start.cast::<i64>();
            let mut bytes = Bytes {
                start: start.add(WORD * words),
                at: 0,
            };
            let mut keys = Bytes {
                start: bytes.start.add(sizes[0]),
                at: 0,
            };
            let mut kind: c_int = 0;
            for (row, &message) in rows.iter().enumerate() {
                let message = &*message;
                *columns.add(row) = message.offset;
                *columns.add(count + row) = (library.message_timestamp)(message, &mut kind);
                bytes.put(
                    message.payload.cast(),
                    message.len,
                    columns.add(2 * count + row),
                    count,
                );
                keys.put(
                    message.key.cast(),
                    message.key_len,
                    columns.add(4 * count + row),
                    count,
                );
            }
            headers.write(
                library,
                count,
                columns.add(COLUMNS * count),
                keys.start.add(sizes[1]),
            );
        }
        let mut groups = Vec::with_capacity(self.groups.len());
        let mut first = 0;
        for part in self.groups.iter().filter(|part| part.count > 0) {
            // Safety: a message of this topic is held.
            let topic = unsafe { text((library.topic_name)(part.topic)) };
            let stop = first + part.count;
            groups.push((topic, part.partition, first, stop, part.first, part.last));
            first = stop;
        }
        (
            KafkaMemory::new(memory),
            count,
            sizes,
            self.keys,
            headers.count,
            groups,
        )
    }
}

/// Byte strings one after the other.
struct Bytes {
    start: *mut u8,
    at: usize,
}

impl Bytes {
    /// # Safety
    /// There are `size` bytes at `from` unless it is null, room for them, and room for two numbers: where they begin,
    /// and, `stride` numbers further, their length, -1 for null.
    unsafe fn put(&mut self, from: *const u8, size: usize, place: *mut i64, stride: usize) {
        // Safety: as above.
        unsafe {
            *place = self.at as i64;
            if from.is_null() {
                *place.add(stride) = -1;
                return;
            }
            *place.add(stride) = size as i64;
            std::ptr::copy_nonoverlapping(from, self.start.add(self.at), size);
            self.at += size;
        }
    }
}

/// The headers of a block's rows: where they are, and how large.
struct HeaderSizes {
    lists: Vec<(usize, HeaderList)>,
    count: usize,
    name_bytes: usize,
    value_bytes: usize,
}

impl HeaderSizes {
    /// # Safety
    /// The messages are librdkafka's and live as long as what is returned.
    unsafe fn of(library: &Library, rows: &[*mut Message]) -> HeaderSizes {
        let mut sizes = HeaderSizes {
            lists: Vec::new(),
            count: 0,
            name_bytes: 0,
            value_bytes: 0,
        };
        for (row, &message) in rows.iter().enumerate() {
            // Safety: as above; names end with a null.
            unsafe {
                let Some(list) = headers::list_of(library, message) else {
                    continue;
                };
                headers::places(library, list, |(name, value, size)| {
                    sizes.count += 1;
                    sizes.name_bytes += std::ffi::CStr::from_ptr(name).to_bytes().len();
                    sizes.value_bytes += if value.is_null() { 0 } else { size };
                });
                sizes.lists.push((row, list));
            }
        }
        sizes
    }

    /// How many numbers tell of the headers: two a row, four a header; none where there are no headers.
    fn words(&self, rows: usize) -> usize {
        if self.count == 0 {
            0
        } else {
            2 * rows + 4 * self.count
        }
    }

    /// # Safety
    /// There is room for `words` numbers at `columns`, and for the bytes of all names and then all values at `bytes`.
    unsafe fn write(&self, library: &Library, rows: usize, columns: *mut i64, bytes: *mut u8) {
        if self.count == 0 {
            return;
        }
        // Safety: as above; the lists live, and are as they were when they were measured.
        unsafe {
            let mut names = Bytes {
                start: bytes,
                at: 0,
            };
            let mut values = Bytes {
                start: bytes.add(self.name_bytes),
                at: 0,
            };
            let places = columns.add(2 * rows);
            let mut at = 0;
            let mut lists = self.lists.iter().peekable();
            for row in 0..rows {
                *columns.add(row) = at as i64;
                if let Some((_, list)) = lists.next_if(|(owner, _)| *owner == row) {
                    headers::places(library, *list, |(name, value, size)| {
                        let length = std::ffi::CStr::from_ptr(name).to_bytes().len();
                        names.put(name.cast(), length, places.add(at), self.count);
                        values.put(value, size, places.add(2 * self.count + at), self.count);
                        at += 1;
                    });
                }
                *columns.add(rows + row) = at as i64 - *columns.add(row);
            }
        }
    }
}
