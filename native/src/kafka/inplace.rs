//! Headers of records, read where they lie: behind the value, in the response that librdkafka took the record from.
//!
//! Asking librdkafka costs a thousand instructions for each record, even for one without headers: it sets up a buffer
//! to parse them with. A record (format 2, <https://kafka.apache.org/documentation/#record>) ends with its value and
//! then its headers: how many, and for each the length of its name, the name, the length of its value, the value, all
//! numbers zigzag varints. Records of older formats have no headers; behind their value stands the high byte of the
//! next record's offset, which is 0, or a byte that is taken for nothing that is read here.
//!
//! That values lie in the response is how librdkafka works, not what it promises. So the bytes behind a value are
//! looked at only if the next record of the partition begins close behind: whatever lies between is memory that can be
//! read. And one record of each block is compared with librdkafka's own answer; at the first difference nothing is
//! read in place any more.

use std::sync::atomic::{AtomicBool, Ordering};

use super::headers::list_of;
use super::library::{HeaderList, Library, Message};

/// The next record must begin nearer than so many bytes: as both ends can be read, so can all between, in pages of any
/// size.
const CLOSE: usize = 4096;

static WRONG: AtomicBool = AtomicBool::new(false);

/// The headers of a record, in one of two forms.
pub enum Found {
    /// As librdkafka lists them.
    List(HeaderList),
    /// As they lie in the response: so many, whole, at the beginning of these bytes.
    Lying(u64, *const [u8]),
}

/// Finds the headers of a block's records, asked for in their order.
pub struct Finder<'a> {
    library: &'a Library,
    trusted: bool,
    compared: bool,
}

impl<'a> Finder<'a> {
    pub fn new(library: &'a Library) -> Finder<'a> {
        Finder {
            library,
            trusted: !WRONG.load(Ordering::Relaxed),
            compared: false,
        }
    }

    /// The headers of this record, behind which lies `next`; `None` if it has none, or some that cannot be read.
    ///
    /// # Safety
    /// The messages are librdkafka's and live as long as what is returned.
    pub unsafe fn find(&mut self, message: &Message, next: Option<&Message>) -> Option<Found> {
        // Safety: as above.
        unsafe {
            let lying = next.filter(|_| self.trusted);
            let Some((count, bytes)) = lying.and_then(|next| whole(behind(message, next)?)) else {
                return list_of(self.library, message).map(Found::List);
            };
            if !self.compared {
                self.compared = true;
                let list = list_of(self.library, message);
                if list.map_or(0, |list| (self.library.header_cnt)(list) as u64) != count {
                    WRONG.store(true, Ordering::Relaxed);
                    self.trusted = false;
                    return list.map(Found::List);
                }
            }
            (count > 0).then_some(Found::Lying(count, bytes))
        }
    }
}

/// Tells of each header, which lie at the beginning of these bytes: its name, and its value, if it has one.
pub fn each(count: u64, mut bytes: &[u8], mut tell: impl FnMut(&[u8], Option<&[u8]>)) {
    for _ in 0..count {
        let Some((name, value, rest)) = header(bytes) else {
            return;
        };
        tell(name, value);
        bytes = rest;
    }
}

/// What lies between a record's value and the first byte that is known of the next record, if both can be told.
///
/// # Safety
/// The messages are librdkafka's and live as long as what is returned.
unsafe fn behind<'a>(message: &'a Message, next: &'a Message) -> Option<&'a [u8]> {
    if message.payload.is_null()
        || next.rkt != message.rkt
        || next.partition != message.partition
        || next.offset <= message.offset
    {
        return None;
    }
    let start = message.payload as usize + message.len;
    let first = if next.key.is_null() {
        next.payload
    } else {
        next.key
    };
    let size = (first as usize).checked_sub(start)?;
    // Safety: the byte before the first and the one after the last are librdkafka's, and so near each other that there
    // is no page between them. Nobody writes there while the messages live.
    (1..CLOSE).contains(&size).then(|| unsafe {
        std::slice::from_raw_parts(message.payload.cast::<u8>().add(message.len), size)
    })
}

/// How many headers lie at the beginning of these bytes, and where; `None` if they are not all there and well-formed.
fn whole(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (count, headers) = varint(bytes)?;
    let count = u64::try_from(count).ok()?;
    let mut rest = headers;
    for _ in 0..count {
        rest = header(rest)?.2;
    }
    Some((count, headers))
}

/// Name, value, and what lies behind.
type Header<'a> = (&'a [u8], Option<&'a [u8]>, &'a [u8]);

/// The first of these bytes; `None` if it is not whole.
fn header(bytes: &[u8]) -> Option<Header<'_>> {
    let (size, rest) = varint(bytes)?;
    let (name, rest) = rest.split_at_checked(usize::try_from(size).ok()?)?;
    // librdkafka's names end at a null.
    let name = name.split(|byte| *byte == 0).next().unwrap_or(name);
    let (size, rest) = varint(rest)?;
    if size == -1 {
        return Some((name, None, rest));
    }
    let (value, rest) = rest.split_at_checked(usize::try_from(size).ok()?)?;
    Some((name, Some(value), rest))
}

/// A zigzag varint of at most four bytes, enough for what lies so close, and what lies behind.
fn varint(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let mut number = 0;
    for (at, &byte) in bytes.iter().enumerate().take(4) {
        number |= i64::from(byte & 0x7F) << (7 * at);
        if byte < 0x80 {
            return Some(((number >> 1) ^ -(number & 1), &bytes[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::ptr::null_mut;

    use super::*;

    type Told = Vec<(Vec<u8>, Option<Vec<u8>>)>;

    fn told(bytes: &[u8]) -> Option<Told> {
        let (count, headers) = whole(bytes)?;
        let mut found = Vec::new();
        each(count, headers, |name, value| {
            found.push((name.to_vec(), value.map(<[u8]>::to_vec)));
        });
        Some(found)
    }

    #[test]
    fn headers_are_told_with_their_values_and_without() {
        assert_eq!(told(b"\x00rest"), Some(vec![]));
        assert_eq!(
            told(b"\x06\x02a\x04bc\x00\x01\x02d\x00rest"),
            Some(vec![
                (b"a".to_vec(), Some(b"bc".to_vec())),
                (b"".to_vec(), None),
                (b"d".to_vec(), Some(b"".to_vec())),
            ])
        );
        assert_eq!(
            told(b"\x02\x06a\x00b\x01"),
            Some(vec![(b"a".to_vec(), None)])
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_page_between_two_records_is_not_read() {
        const PAGE: usize = 4096;
        // Safety: three pages of our own, of which nobody may read the second.
        let start = unsafe {
            let all = libc::PROT_READ | libc::PROT_WRITE;
            let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let start = libc::mmap(null_mut(), 3 * PAGE, all, kind, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(start.add(PAGE), PAGE, libc::PROT_NONE), 0);
            start.cast::<u8>()
        };
        let record = |offset, at: usize| Message {
            err: 0,
            rkt: null_mut(),
            partition: 0,
            payload: start.wrapping_add(at).cast(),
            len: 1,
            key: null_mut(),
            key_len: 0,
            offset,
            private: null_mut(),
        };
        let (last, next) = (record(0, PAGE - 1), record(1, 2 * PAGE));
        // Safety: both records lie in pages that can be read.
        assert_eq!(unsafe { behind(&last, &next) }.map(whole), None);
        // Safety: it is ours.
        unsafe { libc::munmap(start.cast(), 3 * PAGE) };
    }

    #[test]
    fn what_is_not_whole_is_left_to_librdkafka() {
        let cut: [&[u8]; 8] = [
            b"",
            b"\x01",
            b"\x02",
            b"\x02\x02",
            b"\x02\x02a",
            b"\x02\x02a\x04b",
            b"\x02\x02a\x03",
            b"\x80\x80\x80\x80\x01",
        ];
        for bytes in cut {
            assert_eq!(told(bytes), None, "{bytes:?}");
        }
    }
}
