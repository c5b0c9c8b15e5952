//! The records received, as a block of columns in one piece of memory.

use std::ffi::c_int;
use std::ptr::null_mut;

use crate::arena::Arena;
use crate::memory::Block as Memory;

use super::headers::Received;
use super::library::{Library, Message, Topic, text};

/// int64 columns of a block: positions, timestamps, starts and lengths of values and of keys.
const COLUMNS: usize = 6;
const WORD: usize = 8;

/// A partition's rows in a block: topic, partition, first row, row after the last, first and last position.
pub type Group = (String, i32, usize, usize, i64, i64);
/// Memory, rows, sizes of all values, of all keys, of all headers, number of keys, of headers, groups.
pub type Block = (Memory, usize, [usize; 3], usize, usize, Vec<Group>);

pub const WAITS: u32 = u32::MAX;

/// Which of the messages become a block, and to which of its groups each belongs.
pub struct Chosen {
    pub group_of: Vec<u32>,
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
    pub fn of(held: &[*mut Message], max_records: usize, max_bytes: usize) -> Chosen {
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
            // Safety: a held message is ours until it is destroyed.
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
        // Records of one partition mostly follow each other: they were fetched together.
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

    /// Their columns; with those of their headers, if they are `wanted`.
    pub fn block(&self, library: &Library, held: &[*mut Message], wanted: bool) -> Block {
        let rows = self.rows(held);
        let headers = if wanted {
            // Safety: held messages are ours until they are destroyed, which is after this.
            unsafe { Headers::of(library, &rows) }
        } else {
            Headers::default()
        };
        let count = rows.len();
        let words = COLUMNS * count + headers.words();
        let sizes = [self.value_bytes, self.key_bytes, headers.found.bytes.len()];
        let mut arena = Arena::take(WORD * words + sizes.iter().sum::<usize>());
        let start = arena.bytes_mut().as_mut_ptr();
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
            headers.write(columns.add(COLUMNS * count), keys.start.add(sizes[1]));
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
            Memory { arena },
            count,
            sizes,
            self.keys,
            headers.found.places.len(),
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

/// The headers of a block's rows.
#[derive(Default)]
struct Headers {
    /// How many headers there are before each row and before the end; nothing if there are none.
    before: Vec<usize>,
    found: Received,
}

impl Headers {
    /// # Safety
    /// The messages are librdkafka's and live as long as this.
    unsafe fn of(library: &Library, rows: &[*mut Message]) -> Headers {
        let mut headers = Headers {
            before: Vec::with_capacity(rows.len() + 1),
            found: Received::default(),
        };
        for &message in rows {
            headers.before.push(headers.found.places.len());
            // Safety: as above.
            unsafe { headers.found.add(library, message) };
        }
        headers.before.push(headers.found.places.len());
        headers
    }

    /// How many numbers tell of the headers: two a row, four a header; none where there are no headers.
    fn words(&self) -> usize {
        match self.found.places.len() {
            0 => 0,
            count => 2 * (self.before.len() - 1) + 4 * count,
        }
    }

    /// # Safety
    /// There is room for `words` numbers at `columns`, and for the bytes of all at `bytes`.
    unsafe fn write(&self, columns: *mut i64, bytes: *mut u8) {
        let (places, from) = (&self.found.places, &self.found.bytes);
        if places.is_empty() {
            return;
        }
        let rows = self.before.len() - 1;
        // Safety: as above.
        unsafe {
            for (row, edges) in self.before.windows(2).enumerate() {
                *columns.add(row) = edges[0] as i64;
                *columns.add(rows + row) = (edges[1] - edges[0]) as i64;
            }
            for (at, place) in places.iter().enumerate() {
                for (column, number) in place.iter().enumerate() {
                    *columns.add(2 * rows + column * places.len() + at) = *number;
                }
            }
            std::ptr::copy_nonoverlapping(from.as_ptr(), bytes, from.len());
        }
    }
}
