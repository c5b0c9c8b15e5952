//! Many records to the cells of a table: one column a key, one row an object.

use super::column::Column;
use super::envelope::{self, Envelope};
use super::pointer::{Field, follow};
use super::scan::{self, Counts, Limits, byte, space};
use super::stated::{self, Stated};
use crate::columnar::core::places::{Places, room};
use crate::columnar::core::spans::{Outside, Span, Spans};

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The options of a table's reader.
pub struct Options<'a> {
    /// Whether the values of this key are to be read.
    pub wanted: &'a (dyn Fn(&[u8]) -> bool + Sync),
    /// The type that the values of this key are to be of.
    pub stated: &'a (dyn Fn(&[u8]) -> Option<Stated> + Sync),
    pub fields: &'a [Field],
    /// Where the records of payloads are.
    pub envelope: &'a Envelope,
    /// Whether each element of an array, and each line, is a row.
    pub each: bool,
    /// Whether payloads are values of the first field and no records. Nulls are rows, too, then.
    pub bare: bool,
    /// Whether NaN and infinity as values of a key are as null. Inside of values they are left to Python.
    pub nan_is_missing: bool,
    /// Bytes of the longest payload that is read here.
    pub longest: usize,
    pub limits: Limits,
}

/// Plain records, taken apart.
pub struct Table {
    pub columns: Vec<Column>,
    /// The columns of the options' fields, and behind them those of the outer ones.
    pub fields: Vec<Column>,
    /// How many columns the first row had: those of fields come behind them.
    of_first_row: usize,
    /// Position of the payload of each row, never falling.
    pub rows: Vec<i64>,
    /// Positions of the payloads that are left to Python, rising.
    pub odd: Vec<i64>,
    places: Places,
    /// Where the values begin that pointers go through, in the record that is read.
    slots: Vec<Option<usize>>,
    /// Where the values are that the payload that is read holds around its records.
    around: envelope::Places,
    /// How many payloads there are, and bytes of all: columns get room for as many values, but no more bytes.
    count: usize,
    bytes: usize,
}

impl Table {
    /// Takes all payloads apart. Nulls are passed over.
    pub fn read(payloads: Spans<'_>, options: &Options<'_>) -> Result<Table, Outside> {
        let count = payloads.len();
        let mut table = Table {
            columns: Vec::new(),
            fields: options
                .fields
                .iter()
                .chain(&options.envelope.outer)
                .map(|field| {
                    let wanted = (options.wanted)(&field.key);
                    let mut column = Column::new(&field.key, wanted, 0, count);
                    column.stated = (options.stated)(&field.key);
                    column
                })
                .collect(),
            of_first_row: 0,
            rows: Vec::with_capacity(count),
            odd: Vec::new(),
            places: Places::default(),
            slots: Vec::new(),
            around: envelope::Places::default(),
            count,
            bytes: payloads.bytes.len(),
        };
        for position in 0..count {
            match payloads.span(position)? {
                Span::Null if options.bare => table.rows.push(position as i64),
                Span::Null => {}
                Span::Stranger => table.odd.push(position as i64),
                Span::At(start, end) => {
                    table.add(position, &payloads.bytes[start..end], start, options);
                }
            }
        }
        for column in table.columns.iter_mut().chain(&mut table.fields) {
            stated::convert(column, payloads.bytes);
        }
        Ok(table)
    }

    /// The columns in the order of their keys, without those that others stand for.
    pub fn in_order(&self) -> impl Iterator<Item = &Column> {
        let first = self.of_first_row.min(self.columns.len());
        let (before, behind) = self.columns.split_at(first);
        let all = before.iter().chain(&self.fields).chain(behind);
        all.filter(|column| !column.hidden)
    }

    fn add(&mut self, position: usize, payload: &[u8], start: usize, options: &Options<'_>) {
        let before = self.rows.len();
        let taken = payload.len() <= options.longest
            && (payload.is_ascii() || std::str::from_utf8(payload).is_ok())
            && self.payload(position, payload, start, options).is_some();
        if !taken {
            self.rows.truncate(before);
            for column in self.columns.iter_mut().chain(&mut self.fields) {
                column.take_back(before);
            }
            self.odd.push(position as i64);
        }
    }

    fn payload(
        &mut self,
        position: usize,
        payload: &[u8],
        start: usize,
        options: &Options<'_>,
    ) -> Option<()> {
        let marked = payload.starts_with(BYTE_ORDER_MARK);
        let (text, base) = if marked {
            (
                &payload[BYTE_ORDER_MARK.len()..],
                start + BYTE_ORDER_MARK.len(),
            )
        } else {
            (payload, start)
        };
        let at = space(text, 0);
        if options.bare {
            let row = self.rows.len();
            let column = self.fields.first_mut()?;
            let end = column.add(text, at, base, row, &mut Counts::default())?;
            self.rows.push(position as i64);
            return (end == text.len()).then_some(());
        }
        let first = self.rows.len();
        let end = if !options.envelope.is_empty() {
            self.enclosed(position, text, at, base, options)?
        } else if !options.each {
            let counts = Counts::default();
            self.object(position, text, at, base, counts, options)?.0
        } else if byte(text, at) == b'[' {
            self.elements(position, text, at, base, options)?
        } else {
            self.lines(position, text, at, base, options)?
        };
        let few = self.rows.len() - first <= options.limits.elements;
        (few && space(text, end) == text.len()).then_some(())
    }

    /// The rows of a payload that holds them somewhere inside; where it ends.
    fn enclosed(
        &mut self,
        position: usize,
        text: &[u8],
        at: usize,
        base: usize,
        options: &Options<'_>,
    ) -> Option<usize> {
        let (first, mut counts) = (self.rows.len(), Counts::default());
        let mut places = std::mem::take(&mut self.around);
        let mut read = |at: usize, counts: &mut Counts| match byte(text, at) {
            // There is no record.
            b'n' => scan::skip(text, at, counts),
            b'[' if options.each => self.elements(position, text, at, base, options),
            _ if options.each => None,
            _ => {
                let (end, all) = self.object(position, text, at, base, *counts, options)?;
                *counts = all;
                Some(end)
            }
        };
        let envelope = options.envelope;
        let end = envelope.walk(text, at, &mut places, &mut counts, &mut read)?;
        // Of several records each has limits of its own, and so have the values around them.
        if !options.each && !counts.within(&options.limits) {
            return None;
        }
        let mut bytes = 0;
        for outer in 0..envelope.outer.len() {
            let Some(at) = envelope.place(text, outer, &places)? else {
                continue;
            };
            let column = &mut self.fields[options.fields.len() + outer];
            for row in first..self.rows.len() {
                let mut counts = Counts::default();
                bytes += put(column, text, at, base, row, &mut counts, options)? - at;
                if options.each && (bytes > options.longest || !counts.within(&options.limits)) {
                    return None;
                }
            }
        }
        self.around = places;
        Some(end)
    }

    /// The rows of lines from `at` on; where they end.
    fn lines(
        &mut self,
        position: usize,
        text: &[u8],
        mut at: usize,
        base: usize,
        options: &Options<'_>,
    ) -> Option<usize> {
        while at < text.len() {
            let counts = Counts::default();
            let (end, _) = self.object(position, text, at, base, counts, options)?;
            at = space(text, end);
            if at < text.len() && !text[end..at].contains(&b'\n') {
                return None;
            }
        }
        Some(at)
    }

    /// The rows of the array that begins at `at`; where it ends.
    fn elements(
        &mut self,
        position: usize,
        text: &[u8],
        at: usize,
        base: usize,
        options: &Options<'_>,
    ) -> Option<usize> {
        let mut at = space(text, at + 1);
        if byte(text, at) != b']' {
            loop {
                let counts = Counts::default();
                let (end, _) = self.object(position, text, at, base, counts, options)?;
                at = space(text, end);
                match byte(text, at) {
                    b',' => at = space(text, at + 1),
                    b']' => break,
                    _ => return None,
                }
            }
        }
        Some(at + 1)
    }

    /// The object that begins at `at` as a row: where it ends, and the counts with its own.
    fn object(
        &mut self,
        position: usize,
        text: &[u8],
        begin: usize,
        base: usize,
        mut counts: Counts,
        options: &Options<'_>,
    ) -> Option<(usize, Counts)> {
        if byte(text, begin) != b'{' {
            return None;
        }
        let row = self.rows.len();
        counts.bracket();
        self.slots.fill(None);
        let mut expected = 0;
        let mut at = space(text, begin + 1);
        if byte(text, at) == b'}' {
            at += 1;
        } else {
            loop {
                let (place, end) = self.key(position, text, at, expected, options)?;
                at = space(text, end);
                if byte(text, at) != b':' {
                    return None;
                }
                counts.colon();
                at = space(text, at + 1);
                let column = &mut self.columns[place];
                if let Some(slot) = column.root {
                    self.slots[slot] = Some(at);
                }
                at = space(
                    text,
                    put(column, text, at, base, row, &mut counts, options)?,
                );
                expected = place + 1;
                match byte(text, at) {
                    b',' => {
                        counts.comma();
                        at = space(text, at + 1);
                    }
                    b'}' => {
                        at += 1;
                        break;
                    }
                    _ => return None,
                }
            }
        }
        if !counts.within(&options.limits) {
            return None;
        }
        if !self.fields.is_empty() {
            self.pointers(text, begin, base, row, options)?;
        }
        if row == 0 {
            self.of_first_row = self.columns.len();
        }
        self.rows.push(position as i64);
        Some((at, counts))
    }

    /// Column and end of the key that begins at `at`.
    #[inline]
    fn key(
        &mut self,
        position: usize,
        text: &[u8],
        at: usize,
        expected: usize,
        options: &Options<'_>,
    ) -> Option<(usize, usize)> {
        if let Some(end) = self
            .columns
            .get(expected)
            .and_then(|column| column.key_ends(text, at))
        {
            return Some((expected, end));
        }
        if byte(text, at) != b'"' {
            return None;
        }
        let (end, escaped) = scan::string(text, at)?;
        if escaped {
            return None;
        }
        let key = &text[at + 1..end - 1];
        let place = self.place(key);
        Some((
            place.unwrap_or_else(|| self.new_column(key, position, options)),
            end,
        ))
    }

    fn place(&self, key: &[u8]) -> Option<usize> {
        let keys = self.columns.iter().map(|column| &column.key[..]);
        self.places.find(key, keys)
    }

    fn new_column(&mut self, key: &[u8], position: usize, options: &Options<'_>) -> usize {
        let place = self.columns.len();
        let mut fields = options.fields.iter().chain(&options.envelope.outer);
        let hidden = fields.any(|field| field.key == key);
        let wanted = !hidden && (options.wanted)(key);
        let mut column = Column::new(key, wanted, position, room(place, self.count, self.bytes));
        column.hidden = hidden;
        column.stated = (options.stated)(key);
        if options
            .fields
            .iter()
            .any(|field| field.steps.first().is_some_and(|step| step.key == key))
        {
            column.root = Some(self.slots.len());
            self.slots.push(None);
        }
        self.places.add(key, place);
        self.columns.push(column);
        place
    }

    fn pointers(
        &mut self,
        text: &[u8],
        begin: usize,
        base: usize,
        row: usize,
        options: &Options<'_>,
    ) -> Option<()> {
        for (field, column) in options.fields.iter().zip(&mut self.fields) {
            let mut place = Some(begin);
            if let Some(first) = field.steps.first() {
                let keys = self.columns.iter().map(|column| &column.key[..]);
                let root = self.places.find(&first.key, keys);
                let slot = root.and_then(|root| self.columns[root].root);
                place = slot.and_then(|slot| self.slots[slot]);
            }
            let rest = field.steps.get(1..).unwrap_or_default();
            if let Some(at) = follow(text, place, rest)? {
                put(column, text, at, base, row, &mut Counts::default(), options)?;
            }
        }
        Some(())
    }
}

/// Adds the value that begins at `at` to the column; where it ends. NaN is no value, if the options allow it.
#[inline(always)]
fn put(
    column: &mut Column,
    text: &[u8],
    at: usize,
    base: usize,
    row: usize,
    counts: &mut Counts,
    options: &Options<'_>,
) -> Option<usize> {
    match column.add(text, at, base, row, counts) {
        None if options.nan_is_missing => column.not_a_number(text, at, row),
        end => end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columnar::core::cells::Kind;
    use crate::columnar::core::spans::Joined;
    use crate::json::core::pointer::Step;

    fn table(payloads: &[&[u8]], each: bool, fields: &[Field]) -> Table {
        let payloads = Joined::of(payloads);
        let options = Options {
            wanted: &|key| key == b"n",
            stated: &|_| None,
            fields,
            envelope: &Envelope::default(),
            each,
            bare: false,
            nan_is_missing: false,
            longest: 100,
            limits: Limits {
                depth: 5,
                keys: 10,
                elements: 100,
            },
        };
        Table::read(payloads.spans(), &options).expect("spans in the buffer")
    }

    fn rows(column: &Column) -> Vec<usize> {
        column.entries.rows().collect()
    }

    #[test]
    fn records_become_rows_and_what_is_odd_leaves_no_trace() {
        let found = table(
            &[
                b"{\"n\": 1, \"s\": \"x\"}",
                b"{\"n\": 2, \"n\": 3}",
                b"{\"n\": 2, \"s\": }",
                b"\xef\xbb\xbf{\"s\":null,\"n\":[1,2.5]}",
                b"{\"n\\u0041\":1}",
                b"{\"n\":\"\xff\"}",
                b"[]",
                b"{} ",
                b"{\"n\":[[[[[[1]]]]]]}",
                b"{\"n\":true}",
            ],
            false,
            &[],
        );
        assert_eq!(found.rows, [0, 3, 7, 9]);
        assert_eq!(found.odd, [1, 2, 4, 5, 6, 8]);
        assert_eq!(rows(&found.columns[0]), [0, 1, 3]);
        let kinds: Vec<Kind> = found.columns[0]
            .cells
            .iter()
            .map(|cell| cell.kind)
            .collect();
        assert_eq!(kinds, [Kind::Integer, Kind::Doubles, Kind::Boolean]);
        assert_eq!(rows(&found.columns[1]), [0]);
    }

    #[test]
    fn rows_of_a_payload_fail_together() {
        let found = table(
            &[
                b"[{\"n\":1},{\"n\":2}]",
                b"[{\"n\":1},{\"n\":2},3]",
                b"{\"n\":3}\n{\"s\":4}\n",
                b"{\"n\":3} {\"n\":4}",
                b" [ ] ",
                b"",
            ],
            true,
            &[],
        );
        assert_eq!(found.rows, [0, 0, 2, 2]);
        assert_eq!(found.odd, [1, 3]);
        assert_eq!(rows(&found.columns[0]), [0, 1, 2]);
        assert_eq!(rows(&found.columns[1]), [3]);
    }

    #[test]
    fn fields_are_found_inside() {
        let step = |key: &str, index| Step {
            key: key.as_bytes().to_vec(),
            index,
        };
        let field = Field {
            key: b"n".to_vec(),
            steps: vec![step("a", None), step("1", Some(1))],
        };
        let found = table(
            &[
                b"{\"a\":[5,6],\"n\":0}",
                b"{\"a\":[5]}",
                b"{\"a\":{\"1\":7}}",
                b"{\"a\":null}",
            ],
            false,
            &[field],
        );
        assert_eq!(found.rows.len(), 4);
        assert_eq!(rows(&found.fields[0]), [0, 2]);
        assert_eq!(found.fields[0].cells[1].bits, 7);
        assert!(found.columns[1].hidden);
    }
}
