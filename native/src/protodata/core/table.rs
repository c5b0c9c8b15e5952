//! Many messages to the cells of a table: one column a key, one row a plain message.

use std::collections::HashMap;
use std::fmt;

use super::column::{Column, Outcome};
use super::wire::{FIRST, Range, SECOND, delimited};

/// Columns up to which looking at each is quicker than asking a map.
const FEW: usize = 12;
/// Keys times messages of a table, beyond `FEW_KEYS` keys: there is a place for each, used or not.
const MOST_CELLS: usize = 4_000_000;
const FEW_KEYS: usize = 64;
/// A string that is none: what the sequence of strings has at this place.
pub const NULL: i64 = -1;
/// Something at this place that is no string at all.
pub const STRANGER: i64 = -2;

/// Messages in one buffer: message i is `bytes[starts[i]..starts[i] + lengths[i]]`.
#[derive(Clone, Copy)]
pub struct Messages<'a> {
    pub bytes: &'a [u8],
    pub starts: &'a [i64],
    /// `NULL` or `STRANGER` where there is no message.
    pub lengths: &'a [i64],
}

/// What the reader of a table is to look out for.
pub struct Options<'a> {
    /// Whether the values of this key are to be read.
    pub wanted: &'a dyn Fn(&[u8]) -> bool,
    /// Bytes of the longest message that is plain.
    pub longest: usize,
    /// Keys that a table has room for.
    pub room: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The span of this message does not lie in the buffer.
    Outside(usize),
    /// There are more keys than there is room for.
    Crowded,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Outside(row) => {
                write!(f, "the string at position {row} does not lie in the buffer")
            }
            Refusal::Crowded => write!(f, "too many keys"),
        }
    }
}

/// Plain messages, taken apart.
#[derive(Default)]
pub struct Table {
    pub columns: Vec<Column>,
    /// Positions of the plain messages, rising: the rows.
    pub rows: Vec<i64>,
    /// Positions of the messages that are to be left to protobuf, rising.
    pub odd: Vec<i64>,
    /// Entries of metadata: row, start, length; rows rise. They are not looked into.
    pub metadata: Vec<(i64, i64, i64)>,
    places: HashMap<Vec<u8>, usize>,
}

impl Table {
    /// Takes all messages apart. Nulls are passed over.
    pub fn read(messages: Messages<'_>, options: &Options<'_>) -> Result<Table, Refusal> {
        let count = messages.starts.len().min(messages.lengths.len());
        let room = options.room.min(FEW_KEYS.max(MOST_CELLS / count.max(1)));
        let options = &Options { room, ..*options };
        let mut table = Table {
            rows: Vec::with_capacity(count),
            ..Table::default()
        };
        for row in 0..count {
            let (start, length) = (messages.starts[row], messages.lengths[row]);
            if length == NULL {
                continue;
            }
            if length < 0 {
                table.odd.push(row as i64);
                continue;
            }
            let (Ok(start), Ok(length)) = (usize::try_from(start), usize::try_from(length)) else {
                return Err(Refusal::Outside(row));
            };
            let end = start
                .checked_add(length)
                .filter(|end| *end <= messages.bytes.len());
            let Some(end) = end else {
                return Err(Refusal::Outside(row));
            };
            table.add(row, messages.bytes, (start, end), options, count)?;
        }
        for column in &mut table.columns {
            column.fill(table.rows.len());
        }
        Ok(table)
    }

    fn add(
        &mut self,
        position: usize,
        bytes: &[u8],
        (start, end): Range,
        options: &Options<'_>,
        count: usize,
    ) -> Result<(), Refusal> {
        let (columns, metadata) = (self.columns.len(), self.metadata.len());
        let outcome = if end - start > options.longest {
            Outcome::Odd
        } else {
            self.row(position, bytes, (start, end), options, count)?
        };
        if matches!(outcome, Outcome::Plain) {
            self.rows.push(position as i64);
            return Ok(());
        }
        self.odd.push(position as i64);
        self.metadata.truncate(metadata);
        if matches!(outcome, Outcome::Odd) {
            // Keys that only this message had were perhaps none.
            for column in self.columns.drain(columns..) {
                self.places.remove(&column.key);
            }
        }
        for column in &mut self.columns {
            column.truncate(self.rows.len());
        }
        Ok(())
    }

    fn row(
        &mut self,
        position: usize,
        bytes: &[u8],
        (start, end): Range,
        options: &Options<'_>,
        count: usize,
    ) -> Result<Outcome, Refusal> {
        let row = self.rows.len();
        let mut outcome = Outcome::Plain;
        let mut expected = 0;
        let mut at = start;
        while at < end {
            if let Some((place, stop)) = self.likely(bytes, (at, end), row, expected) {
                expected = place + 1;
                at = stop;
                continue;
            }
            let Some((body, stop)) = delimited(bytes, at + 1, end) else {
                return Ok(Outcome::Odd);
            };
            if bytes[at] == SECOND {
                self.metadata
                    .push((row as i64, at as i64, (stop - at) as i64));
                at = stop;
                continue;
            }
            if bytes[at] != FIRST {
                return Ok(Outcome::Odd);
            }
            let Some((key, value)) = entry(bytes, body, stop) else {
                return Ok(Outcome::Odd);
            };
            let key = &bytes[key.0..key.1];
            let Some(place) = self
                .place(key, expected)
                .or_else(|| self.new_column(key, position, options, count))
            else {
                return if std::str::from_utf8(key).is_ok() {
                    Err(Refusal::Crowded)
                } else {
                    Ok(Outcome::Odd)
                };
            };
            expected = place + 1;
            match self.columns[place].add(bytes, (at, stop), value, row) {
                Outcome::Plain => {}
                Outcome::Wrong => outcome = Outcome::Wrong,
                Outcome::Odd => return Ok(Outcome::Odd),
            }
            at = stop;
        }
        Ok(outcome)
    }

    /// The column of an entry that is made as its last one, and where the entry ends; it is added to the column.
    #[inline]
    fn likely(
        &mut self,
        bytes: &[u8],
        entry: Range,
        row: usize,
        expected: usize,
    ) -> Option<(usize, usize)> {
        let first = self.columns.get_mut(expected);
        if let Some(stop) = first.and_then(|column| column.add_likely(bytes, entry, row)) {
            return Some((expected, stop));
        }
        if self.columns.len() > FEW {
            return None;
        }
        let columns = self.columns.iter_mut().enumerate();
        columns
            .filter(|(place, _)| *place != expected)
            .find_map(|(place, column)| Some((place, column.add_likely(bytes, entry, row)?)))
    }

    /// The column of this key; producers mostly send their keys in one order.
    fn place(&self, key: &[u8], expected: usize) -> Option<usize> {
        if self
            .columns
            .get(expected)
            .is_some_and(|column| column.key == key)
        {
            return Some(expected);
        }
        if self.columns.len() <= FEW {
            return self.columns.iter().position(|column| column.key == key);
        }
        self.places.get(key).copied()
    }

    fn new_column(
        &mut self,
        key: &[u8],
        position: usize,
        options: &Options<'_>,
        count: usize,
    ) -> Option<usize> {
        if self.columns.len() >= options.room || std::str::from_utf8(key).is_err() {
            return None;
        }
        let wanted = (options.wanted)(key);
        let place = self.columns.len();
        self.places.insert(key.to_vec(), place);
        let room = if place < FEW { count } else { 0 };
        self.columns.push(Column::new(key, wanted, position, room));
        Some(place)
    }
}

/// Key and value of the map entry at `bytes[start..stop]`, if it is a key and a value and nothing else.
fn entry(bytes: &[u8], start: usize, stop: usize) -> Option<(Range, Range)> {
    if start == stop || bytes[start] != FIRST {
        return None;
    }
    let key = delimited(bytes, start + 1, stop)?;
    if key.1 == stop || bytes[key.1] != SECOND {
        return None;
    }
    let value = delimited(bytes, key.1 + 1, stop)?;
    (value.1 == stop).then_some((key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: &[u8] = b"\x0a\x09\x0a\x01n\x12\x04\x20\x07\x68\x05";
    const S: &[u8] = b"\x0a\x0b\x0a\x01s\x12\x06\x12\x02ab\x68\x01";

    fn table(messages: &[&[u8]], wanted: &[u8]) -> Result<Table, Refusal> {
        let bytes = messages.concat();
        let lengths: Vec<i64> = messages
            .iter()
            .map(|message| message.len() as i64)
            .collect();
        let starts: Vec<i64> = lengths
            .iter()
            .scan(0, |at, length| {
                *at += length;
                Some(*at - length)
            })
            .collect();
        let options = Options {
            wanted: &|key| key == wanted,
            longest: 1000,
            room: 3,
        };
        Table::read(
            Messages {
                bytes: &bytes,
                starts: &starts,
                lengths: &lengths,
            },
            &options,
        )
    }

    #[test]
    fn plain_messages_become_rows() {
        let both = [N, S].concat();
        let table = table(&[&both, N, b"", S], b"n").expect("room");
        assert_eq!(table.rows, [0, 1, 2, 3]);
        assert_eq!(table.columns[0].lengths, [11, 11, -1, -1]);
        assert_eq!(table.columns[1].lengths, [13, -1, -1, 13]);
        assert_eq!(table.columns[0].cells[1].bits, 7);
        assert!(table.columns[1].cells.is_empty());
    }

    #[test]
    fn what_is_not_plain_leaves_no_trace() {
        let twice = [N, N].concat();
        let broken = [S, &N[..5]].concat();
        let unknown = [S, b"\x3a\x00"].concat();
        let table = table(&[&twice, &broken, N, &unknown], b"n").expect("room");
        assert_eq!(
            (&table.rows[..], &table.odd[..]),
            (&[2][..], &[0, 1, 3][..])
        );
        assert_eq!(table.columns.len(), 1);
        assert_eq!(table.columns[0].starts.len(), 1);
    }

    #[test]
    fn a_wrong_value_keeps_its_key() {
        let wrong = b"\x0a\x07\x0a\x01n\x12\x02\x68\x05";
        let table = table(&[wrong, N], b"n").expect("room");
        assert_eq!((&table.rows[..], &table.odd[..]), (&[1][..], &[0][..]));
        assert_eq!(
            (table.columns[0].first, table.columns[0].cells.len()),
            (0, 1)
        );
    }

    #[test]
    fn metadata_is_set_aside() {
        let table = table(&[b"\x12\x01\xff", &[N, b"\x12\x00"].concat()], b"n").expect("room");
        assert_eq!(table.metadata, [(0, 0, 3), (1, 14, 2)]);
        assert_eq!(table.rows, [0, 1]);
    }

    #[test]
    fn spans_outside_of_the_buffer_are_refused() {
        let options = Options {
            wanted: &|_| false,
            longest: 1000,
            room: 3,
        };
        for (start, length) in [(0, 12), (12, 0), (-1, 1), (i64::MAX, 1), (1, i64::MAX)] {
            let found = Table::read(
                Messages {
                    bytes: N,
                    starts: &[start],
                    lengths: &[length],
                },
                &options,
            );
            assert_eq!(found.err(), Some(Refusal::Outside(0)));
        }
        let found = Table::read(
            Messages {
                bytes: N,
                starts: &[99, 0],
                lengths: &[NULL, STRANGER],
            },
            &options,
        );
        assert_eq!(
            found.map(|table| (table.rows, table.odd)).ok(),
            Some((vec![], vec![1]))
        );
    }

    #[test]
    fn more_keys_than_room_are_refused() {
        let keys: Vec<Vec<u8>> = (b'a'..b'e')
            .map(|key| [&N[..4], &[key], &N[5..]].concat())
            .collect();
        assert_eq!(table(&[&keys.concat()], b"").err(), Some(Refusal::Crowded));
        assert!(table(&[&keys[..3].concat()], b"").is_ok());
    }
}
