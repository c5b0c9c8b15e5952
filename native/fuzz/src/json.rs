//! What must hold of any bytes that are read as plain JSON, and that another parser takes what is taken here.

#[path = "../../src/json/core/mod.rs"]
pub mod core;

use serde::de::IgnoredAny;

use self::core::column::Column;
use self::core::columns;
use self::core::encode::{self, Element, Output, Source};
use self::core::envelope::Envelope;
use self::core::pointer::{Field, Step};
use self::core::scan::{Counts, Limits, skip};
use self::core::stated::Stated;
use self::core::table::{Options, Table};
use crate::columnar::core::spans::{NULL, Spans};

/// Reads payloads, which NUL stands between, in every way, and writes what was found.
pub fn records(bytes: &[u8]) {
    let mut starts = Vec::new();
    let mut lengths = Vec::new();
    for payload in bytes.split(|byte| *byte == 0) {
        starts.push(payload.as_ptr() as i64 - bytes.as_ptr() as i64);
        lengths.push(payload.len() as i64);
    }
    let payloads = Spans {
        bytes,
        starts: &starts,
        lengths: &lengths,
    };
    let (bare, enclosed) = (Envelope::default(), envelope());
    for each in [false, true] {
        for (all, fields) in [(true, vec![]), (false, vec![]), (true, pointers())] {
            for envelope in [&bare, &enclosed] {
                read(payloads, each, all, &fields, envelope);
            }
        }
    }
}

/// Types of some keys, by their first letter.
const STATED: [Stated; 5] = [
    Stated::Number,
    Stated::Integer,
    Stated::Boolean,
    Stated::Text,
    Stated::Other,
];

fn envelope() -> Envelope {
    let field = |key: &str, steps| Field {
        key: key.into(),
        steps,
    };
    let outer = vec![
        field("b", vec![step("b", None)]),
        field("all", vec![]),
        field("in", vec![step("a", None), step("0", Some(0))]),
    ];
    Envelope::new(vec![step("a", None)], outer)
}

fn step(key: &str, index: Option<usize>) -> Step {
    Step {
        key: key.into(),
        index,
    }
}

fn pointers() -> Vec<Field> {
    vec![
        Field {
            key: b"a".to_vec(),
            steps: vec![step("b", None), step("0", Some(0))],
        },
        Field {
            key: b"whole".to_vec(),
            steps: vec![],
        },
    ]
}

fn read(payloads: Spans<'_>, each: bool, all: bool, fields: &[Field], envelope: &Envelope) {
    let options = Options {
        wanted: &|_| all,
        stated: &|key| {
            key.first()
                .and_then(|first| STATED.get(usize::from(first % 8)))
                .copied()
        },
        fields,
        envelope,
        each,
        bare: false,
        nan_is_missing: false,
        longest: 1 << 20,
        limits: Limits {
            depth: 32,
            keys: 100,
            elements: 1000,
        },
    };
    let table = Table::read(payloads, &options).expect("the payloads lie in the buffer");
    columns::block(&table, payloads.bytes);
    let rows = table.rows.len();
    if !each {
        // A payload with null where its record is has none.
        assert!(rows + table.odd.len() <= payloads.starts.len());
        assert!(!envelope.is_empty() || rows + table.odd.len() == payloads.starts.len());
        for row in &table.rows {
            let start = payloads.starts[*row as usize] as usize;
            let text = &payloads.bytes[start..start + payloads.lengths[*row as usize] as usize];
            let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
            assert!(serde_json::from_slice::<IgnoredAny>(text).is_ok());
        }
    }
    for column in table.columns.iter().chain(&table.fields) {
        spans(column, payloads.bytes, rows);
    }
    written(&table, payloads.bytes, rows);
}

/// Every value ends where it ends, alone too.
fn spans(column: &Column, bytes: &[u8], rows: usize) {
    let places: Vec<usize> = column.entries.rows().collect();
    assert_eq!(places.len(), column.entries.len());
    assert!(places.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(places.last().is_none_or(|last| *last < rows));
    assert!(!column.wanted || column.cells.len() == column.entries.len());
    for extent in &column.entries.extents {
        let value = &bytes[extent.start as usize..][..extent.length as usize];
        assert_eq!(skip(value, 0, &mut Counts::default()), Some(value.len()));
        assert_ne!(value, b"null");
    }
}

/// What passes through is an object that is read again; numbers are written as they are read.
fn written(table: &Table, bytes: &[u8], rows: usize) {
    let mut outputs = Vec::new();
    let spread: Vec<(&Column, Vec<i64>, Vec<i64>)> = table
        .columns
        .iter()
        .map(|column| {
            let (mut starts, mut lengths) = (vec![0; rows], vec![NULL; rows]);
            for (place, row) in column.entries.rows().enumerate() {
                starts[row] = column.entries.extents[place].start;
                lengths[row] = column.entries.extents[place].length;
            }
            (column, starts, lengths)
        })
        .collect();
    for (column, starts, lengths) in &spread {
        outputs.push(Output {
            prefix: [b"\"", &column.key[..], b"\":"].concat(),
            source: Source::Json(Spans {
                bytes,
                starts,
                lengths,
            }),
        });
    }
    let (out, lengths) = encode::objects(rows, &outputs, &[]);
    let mut rest = &out[..];
    for length in lengths {
        let (text, behind) = rest.split_at(length as usize);
        assert!(serde_json::from_slice::<IgnoredAny>(text).is_ok());
        rest = behind;
    }
    let floats: Vec<f64> = bytes
        .chunks_exact(8)
        .map(|raw| f64::from_le_bytes(raw.try_into().unwrap()))
        .filter(|float| float.is_finite())
        .collect();
    let raw: Vec<u8> = floats
        .iter()
        .flat_map(|float| float.to_ne_bytes())
        .collect();
    let array = Output {
        prefix: b"\"x\":".to_vec(),
        source: Source::Numbers {
            element: Element::Float64,
            shape: vec![floats.len()],
            values: &raw,
            present: None,
            whole: None,
        },
    };
    let (out, _) = encode::objects(1, &[array], &[]);
    let inner = &out[b"{\"x\":[".len()..out.len() - 2];
    let again: Vec<f64> = std::str::from_utf8(inner)
        .unwrap()
        .split(',')
        .filter(|text| !text.is_empty())
        .map(|text| text.parse().unwrap())
        .collect();
    assert_eq!(again.len(), floats.len());
    assert!(
        again
            .iter()
            .zip(&floats)
            .all(|(a, b)| a.to_bits() == b.to_bits())
    );
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_passes_whatever_byte_of_it_is_another() {
        for file in std::fs::read_dir("corpus/json").expect("in native/fuzz") {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            super::records(&bytes);
            for place in 0..bytes.len() {
                let mut other = bytes.clone();
                for byte in b"\0\x1f \"\\,:[]{}0-.eu\xff" {
                    other[place] = *byte;
                    super::records(&other);
                }
                super::records(&bytes[..place]);
            }
        }
    }
}
