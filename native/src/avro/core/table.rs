//! Many records of one schema to the cells of a table: one column a field, one row a record.

use super::column::Column;
use super::program::Program;
use super::scan;
use crate::columnar::core::places::room;
use crate::columnar::core::spans::{Outside, Span, Spans};

/// The options of a table's reader.
pub struct Options<'a> {
    /// Whether the values of this key are to be read.
    pub wanted: &'a (dyn Fn(&[u8]) -> bool + Sync),
    /// The bytes before each record; a payload that begins otherwise is left to Python.
    pub prefix: &'a [u8],
    /// Bytes of the longest payload that is read here.
    pub longest: usize,
}

/// Records, taken apart.
pub struct Table {
    pub columns: Vec<Column>,
    /// Position of the payload of each row, rising.
    pub rows: Vec<i64>,
    /// Positions of the payloads that are left to Python, rising.
    pub odd: Vec<i64>,
}

impl Table {
    /// Takes all payloads apart. Nulls are passed over.
    pub fn read(
        payloads: Spans<'_>,
        program: &Program,
        options: &Options<'_>,
    ) -> Result<Table, Outside> {
        let count = payloads.len();
        let keys = program
            .fields()
            .iter()
            .filter_map(|field| Some((field.key.as_ref()?, field.node)));
        let column = |(place, (key, node)): (usize, (&Vec<u8>, usize))| {
            let room = room(place, count, payloads.bytes.len());
            Column::new(key, node, (options.wanted)(key), room)
        };
        let mut table = Table {
            columns: keys.enumerate().map(column).collect(),
            rows: Vec::with_capacity(count),
            odd: Vec::new(),
        };
        for position in 0..count {
            match payloads.span(position)? {
                Span::Null => {}
                Span::Stranger => table.odd.push(position as i64),
                Span::At(start, end) => {
                    let payload = &payloads.bytes[start..end];
                    if table.add(payload, start, program, options).is_some() {
                        table.rows.push(position as i64);
                    } else {
                        let rows = table.rows.len();
                        for column in &mut table.columns {
                            column.take_back(rows);
                        }
                        table.odd.push(position as i64);
                    }
                }
            }
        }
        Ok(table)
    }

    fn add(
        &mut self,
        payload: &[u8],
        start: usize,
        program: &Program,
        options: &Options<'_>,
    ) -> Option<()> {
        if payload.len() > options.longest {
            return None;
        }
        let text = payload.strip_prefix(options.prefix)?;
        let (base, row) = (start + options.prefix.len(), self.rows.len());
        let mut columns = self.columns.iter_mut();
        let mut at = 0;
        for field in program.fields() {
            at = match &field.key {
                Some(_) => columns.next()?.add(program, text, at, base, row)?,
                None => scan::skip(program, field.node, text, at)?,
            };
        }
        (at == text.len()).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::program::{Field, Node, Unit};
    use super::*;
    use crate::columnar::core::cells::Kind;
    use crate::columnar::core::spans::Joined;

    fn field(node: usize, key: Option<&[u8]>) -> Field {
        Field {
            node,
            key: key.map(<[u8]>::to_vec),
        }
    }

    fn program() -> Program {
        let number = Node::Integer {
            small: false,
            unit: Unit::One,
        };
        let fields = vec![
            field(2, Some(b"n")),
            field(3, None),
            field(4, Some(b"l")),
            field(3, Some(b"s")),
        ];
        let union = Node::Union(vec![0, 1]);
        let nodes = vec![
            Node::Null,
            number,
            union,
            Node::Text,
            Node::Array(1),
            Node::Record(fields),
        ];
        Program::of(nodes).expect("a table of types")
    }

    #[test]
    fn records_become_rows_and_what_is_odd_leaves_no_trace() {
        let payloads: [&[u8]; 8] = [
            b"#\x02\x08\x02x\x04\x02\x04\x00\x02y",
            b"#\x00\x02x\x00\x02y",
            b"#\x02\x08\x02x\x04\x02\x04\x00\x02\xff",
            b"#\x02\x08\x02x\x04\x02\x04\x00\x02y!",
            b"#\x02\x08\x02x\x04\x02",
            b"-\x02\x08\x02x\x00\x02y",
            b"",
            b"#\x02\x03\x02x\x01\x02\x06\x00\x02z",
        ];
        let payloads = Joined::of(&payloads);
        let options = Options {
            wanted: &|key| key != b"s",
            prefix: b"#",
            longest: 100,
        };
        let found =
            Table::read(payloads.spans(), &program(), &options).expect("spans in the buffer");
        assert_eq!(found.rows, [0, 1, 7]);
        assert_eq!(found.odd, [2, 3, 4, 5, 6]);
        let [numbers, lists, texts] = &found.columns[..] else {
            panic!("three columns")
        };
        assert_eq!(numbers.entries.rows().collect::<Vec<_>>(), [0, 2]);
        assert_eq!(numbers.cells[0].bits, 4);
        assert_eq!(numbers.cells[1].bits as i64, -2);
        let kinds: Vec<_> = lists
            .cells
            .iter()
            .map(|cell| (cell.kind, cell.count))
            .collect();
        assert_eq!(
            kinds,
            [
                (Kind::Integers, 2),
                (Kind::Integers, 0),
                (Kind::Integers, 1)
            ]
        );
        assert!(texts.cells.is_empty());
        assert_eq!(texts.entries.len(), 3);
    }
}
