//! Many messages to the cells of a table: one column a key, one row a plain message.

use super::column::{Column, Outcome};
use super::wire::{FIRST, Range, SECOND, delimited};
use crate::columnar::core::places::{FEW, Places, room};
use crate::columnar::core::spans::{Outside, Span, Spans};

/// The options of a table's reader.
pub struct Options<'a> {
    /// Whether the values of this key are to be read.
    pub wanted: &'a (dyn Fn(&[u8]) -> bool + Sync),
    /// Bytes of the longest message that is plain.
    pub longest: usize,
    /// Entries of a message that is plain, at most.
    pub most: usize,
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
    places: Places,
}

impl Table {
    /// Takes all messages apart. Nulls are passed over.
    pub fn read(messages: Spans<'_>, options: &Options<'_>) -> Result<Table, Outside> {
        let count = messages.len();
        let mut table = Table {
            rows: Vec::with_capacity(count),
            ..Table::default()
        };
        for row in 0..count {
            match messages.span(row)? {
                Span::Null => {}
                Span::Stranger => table.odd.push(row as i64),
                Span::At(start, end) => {
                    table.add(row, messages.bytes, (start, end), options, count)
                }
            }
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
    ) {
        let (columns, metadata) = (self.columns.len(), self.metadata.len());
        let outcome = if end - start > options.longest {
            Outcome::Odd
        } else {
            self.row(position, bytes, (start, end), options, count)
        };
        if matches!(outcome, Outcome::Plain) {
            self.rows.push(position as i64);
            return;
        }
        self.odd.push(position as i64);
        self.metadata.truncate(metadata);
        if matches!(outcome, Outcome::Odd) {
            // Keys that only this message had were perhaps none.
            for column in self.columns.drain(columns..) {
                self.places.remove(&column.key);
            }
        }
        self.take_back(bytes, (start, end));
    }

    /// Takes the values of this message out of their columns, and touches no others: there may be very many.
    #[cold]
    fn take_back(&mut self, bytes: &[u8], (start, end): Range) {
        let row = self.rows.len();
        let mut at = start;
        while at < end {
            let Some((body, stop)) = delimited(bytes, at + 1, end) else {
                return;
            };
            if let Some((key, _)) = entry(bytes, body, stop)
                && let Some(place) = self.place(&bytes[key.0..key.1], 0)
            {
                self.columns[place].take_back(row);
            }
            at = stop;
        }
    }

    fn row(
        &mut self,
        position: usize,
        bytes: &[u8],
        (start, end): Range,
        options: &Options<'_>,
        count: usize,
    ) -> Outcome {
        let row = self.rows.len();
        let mut outcome = Outcome::Plain;
        let mut expected = 0;
        let mut entries = 0;
        let mut at = start;
        while at < end {
            entries += 1;
            if entries > options.most {
                return Outcome::Odd;
            }
            if let Some((place, stop)) = self.likely(bytes, (at, end), row, expected) {
                expected = place + 1;
                at = stop;
                continue;
            }
            let Some((body, stop)) = delimited(bytes, at + 1, end) else {
                return Outcome::Odd;
            };
            if bytes[at] == SECOND {
                self.metadata
                    .push((row as i64, at as i64, (stop - at) as i64));
                at = stop;
                continue;
            }
            if bytes[at] != FIRST {
                return Outcome::Odd;
            }
            let Some((key, value)) = entry(bytes, body, stop) else {
                return Outcome::Odd;
            };
            let key = &bytes[key.0..key.1];
            let Some(place) = self
                .place(key, expected)
                .or_else(|| self.new_column(key, position, options, (count, bytes.len())))
            else {
                return Outcome::Odd;
            };
            expected = place + 1;
            match self.columns[place].add(bytes, (at, stop), value, row) {
                Outcome::Plain => {}
                Outcome::Wrong => outcome = Outcome::Wrong,
                Outcome::Odd => return Outcome::Odd,
            }
            at = stop;
        }
        outcome
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
        let keys = self.columns.iter().map(|column| &column.key[..]);
        self.places.find(key, keys)
    }

    /// A column of this key, unless it is none.
    fn new_column(
        &mut self,
        key: &[u8],
        position: usize,
        options: &Options<'_>,
        (count, size): (usize, usize),
    ) -> Option<usize> {
        std::str::from_utf8(key).ok()?;
        let wanted = (options.wanted)(key);
        let place = self.columns.len();
        self.places.add(key, place);
        self.columns
            .push(Column::new(key, wanted, position, room(place, count, size)));
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
    use crate::columnar::core::spans::{Joined, NULL, STRANGER};

    const N: &[u8] = b"\x0a\x09\x0a\x01n\x12\x04\x20\x07\x68\x05";
    const S: &[u8] = b"\x0a\x0b\x0a\x01s\x12\x06\x12\x02ab\x68\x01";

    fn table(messages: &[&[u8]], wanted: &[u8]) -> Table {
        let messages = Joined::of(messages);
        let options = Options {
            wanted: &|key| key == wanted,
            longest: 1000,
            most: 3,
        };
        Table::read(messages.spans(), &options).expect("spans in the buffer")
    }

    fn rows(column: &Column) -> Vec<usize> {
        column.entries.rows().collect()
    }

    #[test]
    fn plain_messages_become_rows() {
        let both = [N, S].concat();
        let table = table(&[&both, N, b"", S], b"n");
        assert_eq!(table.rows, [0, 1, 2, 3]);
        assert_eq!(table.columns[0].entries.extents[1].length, 11);
        assert_eq!(rows(&table.columns[0]), [0, 1]);
        assert_eq!(table.columns[1].entries.extents[1].length, 13);
        assert_eq!(rows(&table.columns[1]), [0, 3]);
        assert_eq!(table.columns[0].cells[1].bits, 7);
        assert!(table.columns[1].cells.is_empty());
    }

    #[test]
    fn what_is_not_plain_leaves_no_trace() {
        let twice = [N, N].concat();
        let broken = [S, &N[..5]].concat();
        let unknown = [S, b"\x3a\x00"].concat();
        let table = table(&[&twice, &broken, N, &unknown], b"n");
        assert_eq!(
            (&table.rows[..], &table.odd[..]),
            (&[2][..], &[0, 1, 3][..])
        );
        assert_eq!(table.columns.len(), 1);
        assert_eq!(table.columns[0].entries.len(), 1);
    }

    #[test]
    fn a_wrong_value_keeps_its_key() {
        let wrong = b"\x0a\x07\x0a\x01n\x12\x02\x68\x05";
        let table = table(&[wrong, N], b"n");
        assert_eq!((&table.rows[..], &table.odd[..]), (&[1][..], &[0][..]));
        assert_eq!(
            (table.columns[0].first, table.columns[0].cells.len()),
            (0, 1)
        );
    }

    #[test]
    fn metadata_is_set_aside() {
        let table = table(&[b"\x12\x01\xff", &[N, b"\x12\x00"].concat()], b"n");
        assert_eq!(table.metadata, [(0, 0, 3), (1, 14, 2)]);
        assert_eq!(table.rows, [0, 1]);
    }

    #[test]
    fn spans_outside_of_the_buffer_are_refused() {
        let options = Options {
            wanted: &|_| false,
            longest: 1000,
            most: 3,
        };
        for (start, length) in [(0, 12), (12, 0), (-1, 1), (i64::MAX, 1), (1, i64::MAX)] {
            let found = Table::read(
                Spans {
                    bytes: N,
                    starts: &[start],
                    lengths: &[length],
                },
                &options,
            );
            assert_eq!(found.err(), Some(Outside(0)));
        }
        let found = Table::read(
            Spans {
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
    fn a_message_of_too_many_entries_is_left_to_protobuf() {
        let keys: Vec<Vec<u8>> = (b'a'..b'e')
            .map(|key| [&N[..4], &[key], &N[5..]].concat())
            .collect();
        let table = table(&[&keys.concat(), &keys[..3].concat(), N], b"");
        assert_eq!((&table.rows[..], &table.odd[..]), (&[1, 2][..], &[0][..]));
        assert_eq!(table.columns.len(), 4);
    }

    #[test]
    fn what_is_taken_back_leaves_gaps_as_they_were() {
        let both = [N, S].concat();
        let broken = [&both[..], b"\x3a\x00"].concat();
        let table = table(&[N, N, &broken, &both, b"", &broken, S], b"s");
        assert_eq!(
            (&table.rows[..], &table.odd[..]),
            (&[0, 1, 3, 4, 6][..], &[2, 5][..])
        );
        assert_eq!(
            (rows(&table.columns[0]), rows(&table.columns[1])),
            (vec![0, 1, 2], vec![2, 4])
        );
        assert_eq!(table.columns[1].cells.len(), 2);
    }

    #[test]
    fn a_key_that_comes_twice_is_noticed_behind_a_gap_too() {
        for before in 0..4 {
            let mut messages = vec![S; before];
            let twice = [N, S, N].concat();
            messages.extend([&twice[..], N]);
            let table = table(&messages, b"");
            assert_eq!(table.odd, [before as i64]);
            assert_eq!(rows(&table.columns[table.columns.len() - 1]), [before]);
        }
    }

    #[test]
    fn keys_of_their_own_take_no_more_place_than_they_have_values() {
        let messages: Vec<Vec<u8>> = (0..=255u8)
            .flat_map(|a| {
                (0..20u8).map(move |b| {
                    [&N[..1], &[10, 10, 2, a & 0x7f, b + (a >> 7) * 32], &N[5..]].concat()
                })
            })
            .collect();
        let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        let table = table(&messages, b"");
        assert_eq!(table.columns.len(), messages.len());
        assert!(table.columns.iter().all(|column| column.entries.len() == 1));
    }
}
