//! What was received, as a block of columns in one piece of memory.

use std::ffi::c_int;
use std::ptr::{null, null_mut};

use super::headers;
use super::inplace::{Finder, Found};
use super::library::{Library, Message, Topic, text};
use super::memory::{KafkaMemory, Memory};

/// int64 columns of a block: positions, timestamps, starts and lengths of values and of keys.
const COLUMNS: usize = 6;
const WORD: usize = 8;

/// A partition's rows in a block: topic, partition, first row, row after the last, first and last position.
pub type Group = (String, i32, usize, usize, i64, i64);
/// Memory, rows, sizes of all values, keys, names and values of headers, number of keys, of headers, groups.
pub type Block = (KafkaMemory, usize, [usize; 4], usize, usize, Vec<Group>);

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

    pub fn block(&self, library: &Library, held: &[*mut Message]) -> Block {
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
    found: Vec<(usize, Found)>,
    count: usize,
    name_bytes: usize,
    value_bytes: usize,
}

impl HeaderSizes {
    /// # Safety
    /// The messages are librdkafka's and live as long as what is returned.
    unsafe fn of(library: &Library, rows: &[*mut Message]) -> HeaderSizes {
        let mut sizes = HeaderSizes {
            found: Vec::new(),
            count: 0,
            name_bytes: 0,
            value_bytes: 0,
        };
        let mut finder = Finder::new(library);
        for (row, &message) in rows.iter().enumerate() {
            // Safety: as above.
            unsafe {
                let next = rows.get(row + 1).map(|&next| &*next);
                let Some(found) = finder.find(&*message, next) else {
                    continue;
                };
                headers::each(library, &found, |name, value| {
                    sizes.count += 1;
                    sizes.name_bytes += name.len();
                    sizes.value_bytes += value.map_or(0, <[u8]>::len);
                });
                sizes.found.push((row, found));
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
        // Safety: as above; what was found lives, and is as it was when it was measured.
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
            let mut found = self.found.iter().peekable();
            for row in 0..rows {
                *columns.add(row) = at as i64;
                if let Some((_, found)) = found.next_if(|(owner, _)| *owner == row) {
                    headers::each(library, found, |name, value| {
                        let (start, size) =
                            value.map_or((null(), 0), |value| (value.as_ptr(), value.len()));
                        names.put(name.as_ptr(), name.len(), places.add(at), self.count);
                        values.put(start, size, places.add(2 * self.count + at), self.count);
                        at += 1;
                    });
                }
                *columns.add(rows + row) = at as i64 - *columns.add(row);
            }
        }
    }
}
