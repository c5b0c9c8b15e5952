//! Messages out of the bytes of a connection.

use std::collections::HashMap;

use super::packet::{self, PUBLISH, Packet};
use super::properties;

/// A message: places in the bytes that were scanned.
#[derive(Clone, Copy)]
pub struct Row {
    pub payload: (usize, usize),
    /// Start and length, without the length in front.
    pub properties: (usize, usize),
    pub code: i32,
    pub packet_id: u16,
    /// The low nibble of the first byte.
    pub flags: u8,
}

/// Recent topics are found without the table, by their last bytes: the table's keyed hash, which clients cannot fill
/// with collisions, takes longer than all other work on a message.
const RECENT: usize = 256;
/// Bytes of a topic above which it is looked up in the table always, so that little is kept twice.
const LONGEST_RECENT: usize = 256;

/// The codes of topics, in the order in which they first came.
pub struct Topics {
    codes: HashMap<Vec<u8>, i32>,
    recent: Vec<Option<(Vec<u8>, i32)>>,
    bytes: usize,
    most: usize,
    most_bytes: usize,
}

impl Topics {
    pub fn new(most: usize, most_bytes: usize) -> Topics {
        Topics {
            codes: HashMap::new(),
            recent: vec![None; RECENT],
            bytes: 0,
            most: most.min(i32::MAX as usize),
            most_bytes,
        }
    }

    pub fn full(&self) -> bool {
        self.codes.len() >= self.most || self.bytes >= self.most_bytes
    }

    pub fn clear(&mut self) {
        self.codes.clear();
        self.recent.fill(None);
        self.bytes = 0;
    }

    /// The code of a topic that is known.
    pub fn code(&mut self, topic: &[u8]) -> Option<i32> {
        let recent = self.recent.get_mut(place(topic))?;
        match recent {
            Some((name, code)) if name.as_slice() == topic => return Some(*code),
            _ => (),
        }
        let code = *self.codes.get(topic)?;
        if topic.len() <= LONGEST_RECENT {
            *recent = Some((topic.to_vec(), code));
        }
        Some(code)
    }

    pub fn add(&mut self, topic: &[u8]) -> i32 {
        if let Some(code) = self.codes.get(topic) {
            return *code;
        }
        let code = self.codes.len() as i32;
        self.codes.insert(topic.to_vec(), code);
        self.bytes += topic.len();
        code
    }
}

/// The place of a topic among those that came of late.
fn place(topic: &[u8]) -> usize {
    let last = topic.last_chunk().map_or_else(
        || {
            topic
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        },
        |last: &[u8; 8]| u64::from_le_bytes(*last),
    );
    (last.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as usize
}

/// The scanner of one connection.
pub struct Scanner {
    pub five: bool,
    pub largest: usize,
    /// Whether a server sends the scanned bytes.
    pub from_server: bool,
    pub topics: Topics,
}

/// The results of a scan beside its rows.
#[derive(Default)]
pub struct Found<'a> {
    /// Where the first packet begins that was not taken.
    pub end: usize,
    /// Topics that came for the first time, in the order of their codes.
    pub names: Vec<&'a [u8]>,
    /// The table of topics was full and began anew: codes begin at 0 again.
    pub anew: bool,
}

impl Scanner {
    /// The messages that `bytes[start..]` begins with, up to `most`, into `rows`.
    pub fn scan<'a>(
        &mut self,
        bytes: &'a [u8],
        start: usize,
        most: usize,
        rows: &mut Vec<Row>,
    ) -> Found<'a> {
        rows.clear();
        let mut found = Found {
            end: start,
            ..Found::default()
        };
        while rows.len() < most {
            let rest = bytes.get(found.end..).unwrap_or_default();
            let Some((packet, row, topic)) = self.message(rest, found.end) else {
                break;
            };
            let code = match self.topics.code(topic) {
                Some(code) => code,
                None if !packet::is_topic(topic) => break,
                None if self.topics.full() && !rows.is_empty() => break,
                None => {
                    if self.topics.full() {
                        self.topics.clear();
                        found.anew = true;
                    }
                    found.names.push(topic);
                    self.topics.add(topic)
                }
            };
            rows.push(Row { code, ..row });
            found.end += packet.size();
        }
        found
    }

    /// The PUBLISH that these bytes, at `at`, begin with: everything but the code of its topic.
    fn message<'a>(&self, bytes: &'a [u8], at: usize) -> Option<(Packet<'a>, Row, &'a [u8])> {
        let packet = Packet::first_of(bytes, self.largest)?;
        if packet.first >> 4 != PUBLISH {
            return None;
        }
        let flags = packet.first & 0xF;
        let qos = flags >> 1 & 3;
        if qos == 3 || (qos == 0 && flags & 8 != 0) {
            return None;
        }
        let (topic, mut rest) = packet::string(packet.body)?;
        let mut packet_id = 0;
        if qos > 0 {
            packet_id = packet::short(rest).filter(|number| *number > 0)?;
            rest = &rest[2..];
        }
        let end = at + packet.size();
        let mut carried = (0, 0);
        if self.five {
            let (length, written) = packet::varint(rest)?;
            rest = &rest[written..];
            let (own, payload) = rest.split_at_checked(length)?;
            if length > 0 && !properties::are_plain(own, self.from_server) {
                return None;
            }
            carried = (end - rest.len(), length);
            rest = payload;
        }
        let row = Row {
            payload: (end - rest.len(), rest.len()),
            properties: carried,
            code: -1,
            packet_id,
            flags,
        };
        Some((packet, row, topic))
    }
}

/// Bytes of columns of so many rows.
pub fn size(rows: usize) -> usize {
    rows * (4 * 8 + 4 + 2 + 1)
}

/// Columns one behind the other: int64 starts and lengths of payloads and of properties, int32 codes of topics, uint16
/// packet identifiers, uint8 flags.
pub fn fill(out: &mut [u8], rows: &[Row]) {
    let count = rows.len();
    let (places, rest) = out.split_at_mut(count * 32);
    let (codes, rest) = rest.split_at_mut(count * 4);
    let (ids, flags) = rest.split_at_mut(count * 2);
    let mut columns = places.chunks_exact_mut((count * 8).max(1));
    let mut column = |of: fn(&Row) -> usize| {
        let places = columns.next().unwrap_or_default();
        for (place, row) in places.chunks_exact_mut(8).zip(rows) {
            place.copy_from_slice(&(of(row) as i64).to_ne_bytes());
        }
    };
    column(|row| row.payload.0);
    column(|row| row.payload.1);
    column(|row| row.properties.0);
    column(|row| row.properties.1);
    for (place, row) in codes.chunks_exact_mut(4).zip(rows) {
        place.copy_from_slice(&row.code.to_ne_bytes());
    }
    for (place, row) in ids.chunks_exact_mut(2).zip(rows) {
        place.copy_from_slice(&row.packet_id.to_ne_bytes());
    }
    for (place, row) in flags.iter_mut().zip(rows) {
        *place = row.flags;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanner(most: usize) -> Scanner {
        Scanner {
            five: false,
            largest: 1000,
            from_server: true,
            topics: Topics::new(most, 1 << 20),
        }
    }

    #[test]
    fn messages_up_to_the_first_other_packet() {
        let bytes = b"\x30\x04\0\x01ax\x32\x05\0\x01b\0\x07\xd0\0";
        let mut rows = Vec::new();
        let mut scanner = scanner(10);
        let found = scanner.scan(bytes, 0, 10, &mut rows);
        assert_eq!(
            (found.end, found.names, rows.len()),
            (13, vec![&b"a"[..], b"b"], 2)
        );
        assert_eq!(
            (rows[0].payload, rows[1].payload, rows[1].packet_id),
            ((5, 1), (13, 0), 7)
        );
        assert_eq!(scanner.scan(bytes, 0, 1, &mut rows).end, 6);
        let mut out = vec![0; size(2)];
        fill(&mut out, &rows);
    }

    #[test]
    fn a_full_table_ends_a_scan_and_the_next_begins_another() {
        let bytes = b"\x30\x03\0\x01a\x30\x03\0\x01b";
        let mut rows = Vec::new();
        let mut scanner = scanner(1);
        assert_eq!(scanner.scan(bytes, 0, 10, &mut rows).end, 5);
        let found = scanner.scan(bytes, 5, 10, &mut rows);
        assert!(found.anew && found.end == 10 && rows[0].code == 0);
    }

    #[test]
    fn topics_that_end_alike_are_told_apart() {
        let mut topics = Topics::new(1 << 16, 1 << 20);
        let names: Vec<Vec<u8>> = (0..2000)
            .map(|number| format!("{number}/temperature").into_bytes())
            .chain((0..100).map(|number| vec![b'x'; number + 1]))
            .collect();
        for (code, name) in names.iter().enumerate() {
            assert_eq!(topics.code(name), None);
            assert_eq!(topics.add(name), code as i32);
        }
        for _ in 0..2 {
            for (code, name) in names.iter().enumerate() {
                assert_eq!(topics.code(name), Some(code as i32));
                assert_eq!(topics.code(name), Some(code as i32));
            }
        }
        topics.clear();
        assert_eq!(topics.code(&names[7]), None);
    }

    #[test]
    fn what_is_cut_or_wrong_is_left_alone() {
        for wrong in [
            &b"\x36\x05\0\x01a\0\x01"[..],
            b"\x38\x03\0\x01a",
            b"\x32\x05\0\x01a\0\0",
            b"\x32\x03\0\x01a",
            b"\x30\x03\0\x01+",
            b"\x30\x02\0\0",
            b"\x30\x03\0\x05a",
            b"\x30\x03\0\x01",
            b"\x30",
            b"",
        ] {
            assert_eq!(
                scanner(9).scan(wrong, 0, 9, &mut Vec::new()).end,
                0,
                "{wrong:?}"
            );
        }
        assert_eq!(scanner(9).scan(b"", 7, 9, &mut Vec::new()).end, 7);
    }
}
