//! Headers of records, read where they lie: behind the value, in the response that librdkafka took the record from.
//!
//! Asking librdkafka costs a thousand instructions for each record, even for one without headers: it sets up a buffer
//! to parse them with. A record (format 2, <https://kafka.apache.org/documentation/#record>) begins with its head: its
//! length, a byte of attributes, the distances of its timestamp and of its offset, the length of its key; it ends with
//! its value and then its headers: how many, and for each the length of its name, the name, the length of its value,
//! the value. All numbers are zigzag varints.
//!
//! That values lie in the response is how librdkafka works, not what it promises. So the bytes behind a value are
//! looked at only if the next record of the partition begins close behind: whatever lies between is memory that can be
//! read. And one record of each block is compared with librdkafka's own answer; at the first difference nothing is
//! read in place any more.
//!
//! Nothing keeps the headers of a broken record from reaching into the next one; librdkafka stops at the record's end.
//! So they are believed only if they end where the record's head, which lies behind the record before, says that it
//! does. Where there is no such head librdkafka is asked as well.

use std::sync::atomic::{AtomicBool, Ordering};

use super::headers::{Received, list_of};
use super::library::{Library, Message};

/// The next record must begin nearer than so many bytes: as both ends can be read, so can all between, in pages of any
/// size.
const CLOSE: usize = 4096;
/// So many bytes of its own lie before the first record of a batch.
const BATCH: usize = 61;

static WRONG: AtomicBool = AtomicBool::new(false);

/// Finds the headers of a block's records, asked for in their order.
pub struct Finder<'a> {
    library: &'a Library,
    trusted: bool,
    compared: bool,
    walk: Walk<'a>,
}

impl<'a> Finder<'a> {
    pub fn new(library: &'a Library) -> Finder<'a> {
        Finder {
            library,
            trusted: !WRONG.load(Ordering::Relaxed),
            compared: false,
            walk: Walk { head: None },
        }
    }

    /// Adds the headers of this record, behind which lies `next`; none if it has none, or some that cannot be read.
    ///
    /// # Safety
    /// The messages are librdkafka's and live as long as this.
    pub unsafe fn find(
        &mut self,
        message: &'a Message,
        next: Option<&'a Message>,
        found: &mut Received,
    ) {
        let mark = found.mark();
        let next = next.filter(|_| self.trusted);
        // Safety: as above.
        unsafe {
            let lying = self.walk.step(message, next, found);
            if self.compared && lying.is_some_and(|lying| lying.sure) {
                return;
            }
            let list = list_of(self.library, message);
            if let Some(lying) = lying {
                self.compared = true;
                if list.map_or(0, |list| (self.library.header_cnt)(list)) == lying.count {
                    return;
                }
                WRONG.store(true, Ordering::Relaxed);
                self.trusted = false;
            }
            found.back(mark);
            if let Some(list) = list {
                found.add_list(self.library, list);
            }
        }
    }
}

/// From record to record of a response.
struct Walk<'m> {
    /// What lies before the next record's key, or its value if it has no key, if that is known.
    head: Option<&'m [u8]>,
}

#[derive(Clone, Copy)]
struct Lying {
    count: usize,
    /// Whether they end where the record does. Otherwise they are its own only if librdkafka can read them.
    sure: bool,
}

impl<'m> Walk<'m> {
    /// Adds the headers behind this record's value; `None`, and what was added is to be taken back, if librdkafka has
    /// to be asked.
    ///
    /// # Safety
    /// The messages are librdkafka's and live as long as this.
    unsafe fn step(
        &mut self,
        message: &'m Message,
        next: Option<&'m Message>,
        found: &mut Received,
    ) -> Option<Lying> {
        let head = self.head.take();
        // Safety: as above.
        let bytes = unsafe { behind(message, next?) }?;
        let (count, rest) = whole(bytes, found)?;
        let size = match head {
            // None need no room.
            Some(head) if count > 0 => size_of_headers(head, message),
            _ => None,
        };
        if size.is_some_and(|size| size != bytes.len() - rest.len()) {
            return None;
        }
        self.head = Some(rest);
        let sure = count == 0 || size.is_some();
        Some(Lying { count, sure })
    }
}

/// What lies between a record's value and the first byte that is known of the next record, if both can be told.
///
/// # Safety
/// The messages are librdkafka's and live as long as what is returned.
unsafe fn behind<'a>(message: &'a Message, next: &'a Message) -> Option<&'a [u8]> {
    // What is empty lies elsewhere: it is null, or a constant of librdkafka's.
    if message.len == 0
        || next.rkt != message.rkt
        || next.partition != message.partition
        || next.offset <= message.offset
    {
        return None;
    }
    let start = message.payload as usize + message.len;
    let first = if next.key_len == 0 {
        next.payload
    } else {
        next.key
    };
    let size = (first as usize).checked_sub(start)?;
    // Safety: the byte before the first and the one after the last are librdkafka's as long as the messages live, and
    // so near each other that there is no page between them. Of one response, nobody writes there. Of two, something
    // else may lie between, to which others write: no length that is read there is used unchecked, or read again, and
    // nothing that is read there is believed.
    (1..CLOSE).contains(&size).then(|| unsafe {
        std::slice::from_raw_parts(message.payload.cast::<u8>().add(message.len), size)
    })
}

/// How many bytes of headers a record has, by its head; `None` if that is not known.
///
/// The bytes are those before its key, or before its value if its key is empty or null; its value is not empty. They
/// begin where a record ends, or earlier.
fn size_of_headers(bytes: &[u8], message: &Message) -> Option<usize> {
    // Of time, of offset, length of the key; and, if there are no bytes of a key, length of the value.
    let (begin, numbers) = if message.key_len == 0 {
        (message.payload, 4)
    } else {
        (message.key, 3)
    };
    let content = (message.payload as usize + message.len).checked_sub(begin as usize)?;
    size_by_head(bytes, numbers, content).or_else(|| {
        // The first record of a batch. Its length begins here, as the byte before would end a number.
        let (before, head) = bytes.split_at_checked(BATCH)?;
        let alone = before.last().is_some_and(|byte| *byte < 0x80);
        size_by_head(head, numbers, content).filter(|_| alone)
    })
}

/// The size, if these bytes are the head of a record, with so many numbers behind the attributes, and so much content
/// between the head and the headers.
///
/// Such a head is the only one that ends here and begins here or later. As no other byte ends a number, it has the same
/// attributes, and its length is the same or the last part of ours; which would be too little for the content.
fn size_by_head(bytes: &[u8], numbers: usize, content: usize) -> Option<usize> {
    let (length, rest) = varint(bytes)?;
    let length = usize::try_from(length).ok()?;
    let content = rest.len() + content;
    let (attributes, rest) = rest.split_first()?;
    let ends = rest.iter().filter(|byte| **byte < 0x80).count();
    let only = *attributes == 0 && ends == numbers && length >> 7 < content;
    (only && content <= length).then(|| length - content)
}

/// Adds the headers that lie at the beginning of these bytes: how many, and what lies behind them; `None` if they are
/// not all there and well-formed, or if a name has a null in it, where librdkafka's end.
fn whole<'b>(bytes: &'b [u8], found: &mut Received) -> Option<(usize, &'b [u8])> {
    let (count, mut rest) = varint(bytes)?;
    let count = usize::try_from(count).ok()?;
    if count > 0 {
        let stop = found.bytes.len() + bytes.len();
        for _ in 0..count {
            let (name, value);
            (name, rest) = string(rest)?;
            let name = name.filter(|name| !name.contains(&0))?.len();
            let name_at = stop - rest.len() - name;
            (value, rest) = string(rest)?;
            found.add(name_at, name, stop - rest.len(), value.map(<[u8]>::len));
        }
        found
            .bytes
            .extend_from_slice(&bytes[..bytes.len() - rest.len()]);
    }
    Some((count, rest))
}

/// The first string of these bytes, `None` for null, and what lies behind; `None` if it is not whole.
fn string(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (size, rest) = varint(bytes)?;
    if size == -1 {
        return Some((None, rest));
    }
    let (string, rest) = rest.split_at_checked(usize::try_from(size).ok()?)?;
    Some((Some(string), rest))
}

/// A zigzag varint of at most four bytes, enough for what lies so close, and what lies behind.
fn varint(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (first, mut rest) = bytes.split_first()?;
    let mut last = *first;
    let mut number = u32::from(last & 0x7F);
    let mut shift = 0;
    while last >= 0x80 {
        shift += 7;
        if shift > 21 {
            return None;
        }
        let (next, behind) = rest.split_first()?;
        (last, rest) = (*next, behind);
        number |= u32::from(last & 0x7F) << shift;
    }
    Some((i64::from(number >> 1) ^ -i64::from(number & 1), rest))
}

#[cfg(test)]
mod tests;
