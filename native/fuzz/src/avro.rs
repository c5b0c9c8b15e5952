//! What must hold of any bytes that are read as Avro records by any schema.

#[path = "../../src/avro/core/mod.rs"]
pub mod core;

use self::core::column::Column;
use self::core::columns;
use self::core::encode::{self, Output, Source, Word};
use self::core::program::{Field, Node, Program, Unit};
use self::core::scan::skip;
use self::core::table::{Options, Table};
use crate::columnar::core::spans::{NULL, Spans};

/// Makes a schema of the first bytes, and reads the payloads behind them, which 0xA5 stands between, as its records.
pub fn payloads(bytes: &[u8]) {
    let Some((size, rest)) = bytes.split_first() else {
        return;
    };
    let (schema, rest) = rest.split_at(usize::from(*size).min(rest.len()));
    let Some(program) = program(schema) else {
        return;
    };
    let mut starts = Vec::new();
    let mut lengths = Vec::new();
    for payload in rest.split(|byte| *byte == 0xA5) {
        starts.push(payload.as_ptr() as i64 - rest.as_ptr() as i64);
        lengths.push(payload.len() as i64);
    }
    let payloads = Spans {
        bytes: rest,
        starts: &starts,
        lengths: &lengths,
    };
    for all in [false, true] {
        read(payloads, &program, all);
    }
}

/// Values of a record without those in its arrays and maps: schemas of more are refused before they come here.
const MOST_VALUES: usize = 500;

/// A type for each byte, made of those before it, and records of the last ones.
fn program(schema: &[u8]) -> Option<Program> {
    let mut nodes = Vec::new();
    let mut least: Vec<usize> = Vec::new();
    let mut values: Vec<usize> = Vec::new();
    for (place, byte) in schema.iter().enumerate() {
        let back = |many: usize| place.checked_sub(1 + many % 4);
        let whole = |small, unit| (Node::Integer { small, unit }, 1);
        let many = usize::from(*byte >> 4);
        let (node, size) = match byte & 15 {
            0 => (Node::Null, 0),
            1 => (Node::Boolean, 1),
            2 => whole(true, Unit::One),
            3 => whole(false, Unit::One),
            4 => whole(true, Unit::Days),
            5 => whole(false, Unit::Parts(1000)),
            6 => whole(false, Unit::Real),
            7 => (Node::Float, 4),
            8 => (Node::Double, 8),
            9 => (
                Node::Bytes {
                    most: many * 20,
                    made: many < 4,
                },
                1,
            ),
            10 => (
                Node::Fixed {
                    size: many + 1,
                    made: many < 4,
                },
                many + 1,
            ),
            11 => (Node::Text, 1),
            12 => (
                Node::Enum(vec![Some(b"a".to_vec()), None, Some(b"bc".to_vec())]),
                1,
            ),
            13 => match back(many) {
                // As schemas are made ready: elements take bytes.
                Some(inner) if least[inner] > 0 && many < 8 => (Node::Array(inner), 1),
                Some(inner) => (Node::Map(inner), 1),
                None => (Node::TextAsBytes, 1),
            },
            14 => (Node::Union((0..place).rev().take(1 + many).collect()), 1),
            _ => {
                let inner: Vec<usize> = (0..place).rev().take(many).collect();
                let size = inner.iter().map(|node| least[*node]).sum();
                (record(&inner), size)
            }
        };
        let count = match &node {
            Node::Union(inner) => inner.iter().map(|node| values[*node]).max().unwrap_or(0),
            Node::Record(fields) => fields.iter().map(|field| values[field.node]).sum::<usize>(),
            _ => 0,
        };
        if count > MOST_VALUES {
            return None;
        }
        values.push(count + 1);
        nodes.push(node);
        least.push(size.min(1 << 20));
    }
    let last: Vec<usize> = (0..nodes.len()).rev().take(6).collect();
    nodes.push(record(&last));
    Program::of(nodes)
}

fn record(inner: &[usize]) -> Node {
    let key = |place: usize| (place % 5 != 4).then(|| format!("k{place}").into_bytes());
    let field = |(place, node): (usize, &usize)| Field {
        node: *node,
        key: key(place),
    };
    Node::Record(inner.iter().enumerate().map(field).collect())
}

fn read(payloads: Spans<'_>, program: &Program, all: bool) {
    let options = Options {
        wanted: &|_| all,
        prefix: b"",
        longest: 1 << 20,
    };
    let table = Table::read(payloads, program, &options).expect("the payloads lie in the buffer");
    let (layout, _) = columns::block(&table, program);
    let (rows, count) = (table.rows.len(), payloads.len());
    assert_eq!(rows + table.odd.len(), count);
    // Numbers in lists are the only values that become larger than what they came as, by eight.
    let fields = program.fields().len();
    assert!(layout.size <= 64 * (fields + 2) * (count + 4) + 8 * payloads.bytes.len());
    let kept = program.fields().iter().filter(|field| field.key.is_some());
    for (column, field) in table.columns.iter().zip(kept) {
        values(column, field.node, program, payloads.bytes, rows);
    }
    if !all {
        written(&table, payloads, program);
    }
}

/// Every value ends where it ends, alone too.
fn values(column: &Column, node: usize, program: &Program, bytes: &[u8], rows: usize) {
    let places: Vec<usize> = column.entries.rows().collect();
    assert_eq!(places.len(), column.entries.len());
    assert!(places.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(places.last().is_none_or(|last| *last < rows));
    assert!(!column.wanted || column.cells.len() == column.entries.len());
    for extent in &column.entries.extents {
        let value = &bytes[extent.start as usize..][..extent.length as usize];
        assert_eq!(skip(program, node, value, 0), Some(value.len()));
    }
}

/// The fields of a record one after the other are the record again.
fn written(table: &Table, payloads: Spans<'_>, program: &Program) {
    if program.fields().iter().any(|field| field.key.is_none()) {
        return;
    }
    let rows = table.rows.len();
    let spread: Vec<(Vec<i64>, Vec<i64>)> = table
        .columns
        .iter()
        .map(|column| {
            let (mut starts, mut lengths) = (vec![0; rows], vec![NULL; rows]);
            for (place, row) in column.entries.rows().enumerate() {
                starts[row] = column.entries.extents[place].start;
                lengths[row] = column.entries.extents[place].length;
            }
            (starts, lengths)
        })
        .collect();
    let outputs: Vec<Output<'_>> = spread
        .iter()
        .map(|(starts, lengths)| Output {
            source: Source::Written(Spans {
                bytes: payloads.bytes,
                starts,
                lengths,
            }),
            word: Word::Long,
            before: Vec::new(),
            absent: Some(Vec::new()),
            present: None,
        })
        .collect();
    let (out, lengths) = encode::records(rows, b"", &outputs).expect("all columns have the rows");
    let mut rest = &out[..];
    for (length, position) in lengths.iter().zip(&table.rows) {
        let (record, behind) = rest.split_at(*length as usize);
        let payload = payloads.get(*position as usize).expect("a payload");
        // Nulls in unions take a byte and are no values.
        assert!(record.len() <= payload.len());
        let without_nulls = table
            .columns
            .iter()
            .all(|column| column.entries.len() == rows);
        assert!(!without_nulls || record == payload);
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_passes_whatever_byte_of_it_is_another() {
        for file in std::fs::read_dir("corpus/avro").expect("in native/fuzz") {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            super::payloads(&bytes);
            for place in 0..bytes.len() {
                let mut other = bytes.clone();
                for byte in b"\x00\x01\x02\x03\x0d\x7f\x80\xff\xa5" {
                    other[place] = *byte;
                    super::payloads(&other);
                }
                super::payloads(&bytes[..place]);
            }
        }
    }
}
