//! What must hold of any bytes whatever, of any spans of them, and of what is read from them and written again.

#[path = "../../src/arena.rs"]
pub mod arena;
pub mod avro;
pub mod columnar;
pub mod inference;
pub mod json;
#[path = "../../src/protodata/core/mod.rs"]
pub mod wire;

use arena::Arena;
use columnar::core::block::Form;
use columnar::core::spans::{NULL, STRANGER, Spans};
use columnar::core::strings::block_size;
use wire::column::Column;
use wire::columns;
use wire::encode::{self, Source};
use wire::table::{Options, Table};
use wire::value::Cell;

/// Reads these bytes as messages, whole and in parts, with all keys wanted and with none.
pub fn messages(bytes: &[u8]) {
    let size = bytes.len() as i64;
    let half = size / 2;
    let starts = [0, 0, half, 0, 0, size, 0];
    let lengths = [size, half, size - half, NULL, STRANGER, 0, size];
    for everything in [false, true] {
        read(bytes, &starts, &lengths, &|_| everything);
    }
    read(bytes, &starts, &lengths, &|key| key.len() % 2 == 1);
    // One change of many, another one for other bytes.
    let sum: usize = bytes.iter().map(|byte| usize::from(*byte)).sum();
    neighbours(bytes, sum % bytes.len().max(1), 1 << (sum % 8));
}

/// What is made of a message is the same whatever came before it: here, and behind itself with one byte changed.
pub fn neighbours(bytes: &[u8], place: usize, flip: u8) {
    let mut other = bytes.to_vec();
    if let Some(byte) = other.get_mut(place) {
        *byte ^= flip;
    }
    let size = bytes.len() as i64;
    // What is read in long words is not short of them.
    let all = [bytes, &other, bytes, &[0; 64]].concat();
    let starts = [0, size, 2 * size];
    let options = Options {
        wanted: &|key| key.len() % 2 == 1,
        longest: 1 << 20,
        most: 1 << 10,
    };
    let table = |starts: &[i64], lengths: &[i64]| {
        let messages = Spans {
            bytes: &all,
            starts,
            lengths,
        };
        Table::read(messages, &options).expect("spans in the buffer")
    };
    let together = table(&starts, &[size; 3]);
    for (message, start) in starts.into_iter().enumerate() {
        let alone = table(&[start], &[size]);
        let row = together.rows.iter().position(|row| *row == message as i64);
        assert_eq!(row.is_some(), !alone.rows.is_empty(), "plain or not");
        let Some(row) = row else { continue };
        for column in &together.columns {
            let found = alone.columns.iter().find(|one| one.key == column.key);
            let place = place_of(column, row);
            assert_eq!(
                place.map(|place| (
                    column.entries.extents[place].start,
                    column.entries.extents[place].length
                )),
                found.map(|one| (one.entries.extents[0].start, one.entries.extents[0].length))
            );
            if let (Some(one), Some(place), true) = (found, place, column.wanted) {
                let (cell, same) = (&column.cells[place], &one.cells[0]);
                assert_eq!(
                    (cell.kind, cell.element, cell.bits, cell.size),
                    (same.kind, same.element, same.bits, same.size)
                );
                let shape = |dims: &[u64], cell: &Cell| {
                    dims[cell.dims_at as usize..][..cell.rank.into()].to_vec()
                };
                assert_eq!(shape(&column.dims, cell), shape(&one.dims, same));
            }
        }
    }
}

/// Reads bytes with spans that may lie anywhere: the bytes begin with them.
pub fn spans(bytes: &[u8]) {
    let Some((count, rest)) = bytes.split_first() else {
        return;
    };
    let count = usize::from(count % 8).min(rest.len() / 16);
    let (raw, rest) = rest.split_at(count * 16);
    let numbers: Vec<i64> = raw
        .chunks_exact(8)
        .map(|raw| i64::from_le_bytes(raw.try_into().unwrap()))
        .collect();
    let (starts, lengths) = numbers.split_at(count);
    read(rest, starts, lengths, &|_| true);
    if let Ok(spans) = Spans::checked(rest, starts, lengths) {
        let written = written(
            count,
            &[Source::Wire { spans }, strings(b"k", true, spans)],
            &[0],
        );
        assert_eq!(written.lengths.len(), count);
    }
}

struct Written {
    bytes: Vec<u8>,
    starts: Vec<i64>,
    lengths: Vec<i64>,
}

fn read(bytes: &[u8], starts: &[i64], lengths: &[i64], wanted: &(dyn Fn(&[u8]) -> bool + Sync)) {
    let options = Options {
        wanted,
        longest: 1 << 20,
        most: 1 << 10,
    };
    let Ok(table) = Table::read(
        Spans {
            bytes,
            starts,
            lengths,
        },
        &options,
    ) else {
        return;
    };
    let rows = table.rows.len();
    let (layout, arena) = columns::block(&table, bytes);
    let block = arena.bytes();
    let line = |number: usize| numbers(&block[number * rows * 8..(number + 1) * rows * 8]);
    assert_eq!(line(0), table.rows);

    // All entries together are the messages, and written again they are these bytes in another order at most.
    let mut sizes = vec![0i64; rows];
    let mut kept = Vec::new();
    let mut made = Vec::new();
    let (entry_starts, entry_lengths): (Vec<_>, Vec<_>) = table
        .columns
        .iter()
        .map(|column| {
            let place = |row| place_of(column, row);
            let starts = (0..rows)
                .map(|row| place(row).map_or(0, |place| column.entries.extents[place].start));
            let lengths = (0..rows)
                .map(|row| place(row).map_or(NULL, |place| column.entries.extents[place].length));
            (starts.collect::<Vec<_>>(), lengths.collect::<Vec<_>>())
        })
        .unzip();
    let with_values = || table.columns.iter().zip(&entry_starts).zip(&entry_lengths);
    let with_values = || with_values().filter(|((column, _), _)| column.entries.len() > 0);
    for ((column, starts), lengths) in with_values() {
        for (row, extent) in column.entries.rows().zip(&column.entries.extents) {
            sizes[row] += extent.length;
        }
        let entries = Spans::checked(bytes, starts, lengths);
        kept.push(Source::Wire {
            spans: entries.expect("entries lie in the buffer"),
        });
    }
    for (row, _, size) in &table.metadata {
        sizes[*row as usize] += size;
    }
    for (row, size) in sizes.iter().enumerate() {
        assert_eq!(
            *size, lengths[table.rows[row] as usize],
            "bytes of a plain message that are in no column"
        );
    }
    let again = written(rows, &kept, &[]);
    let options = Options {
        wanted,
        longest: usize::MAX,
        most: 1 << 10,
    };
    let messages = Spans {
        bytes: &again.bytes,
        starts: &again.starts,
        lengths: &again.lengths,
    };
    let reread = Table::read(messages, &options).expect("spans in the buffer");
    assert_eq!(
        reread.rows.len(),
        rows,
        "a plain message is plain when it is written again"
    );

    // What was decoded, encoded again, decodes to the same.
    let texts: Vec<_> = layout
        .parts
        .iter()
        .map(|part| match part.form {
            Form::Text | Form::Bytes => (line(part.line), line(part.line + 1)),
            _ => (Vec::new(), Vec::new()),
        })
        .collect();
    for (part, (starts, lengths)) in layout.parts.iter().zip(&texts) {
        let key = encode::key_field(&part.key);
        let present = part.mask.map(|mask| &block[mask..mask + rows]);
        match part.form {
            Form::Text | Form::Bytes => {
                let spans =
                    Spans::checked(bytes, starts, lengths).expect("strings lie in the buffer");
                if part.form == Form::Text {
                    for row in 0..rows {
                        assert!(
                            spans
                                .get(row)
                                .is_none_or(|text| std::str::from_utf8(text).is_ok())
                        );
                    }
                }
                made.push(Source::Strings {
                    key,
                    bytes: part.form == Form::Bytes,
                    spans,
                });
            }
            Form::Integer => {
                let values = &block[part.line * rows * 8..(part.line + 1) * rows * 8];
                made.push(Source::Integers {
                    key,
                    values,
                    present,
                });
            }
            _ => {}
        }
    }
    let again = written(rows, &made, &[]);
    let messages = Spans {
        bytes: &again.bytes,
        starts: &again.starts,
        lengths: &again.lengths,
    };
    let options = Options {
        wanted: &|_| true,
        longest: usize::MAX,
        most: 1 << 10,
    };
    let reread = Table::read(messages, &options).expect("spans in the buffer");
    assert_eq!(reread.rows.len(), rows);
    for column in &reread.columns {
        let old = table
            .columns
            .iter()
            .find(|old| old.key == column.key)
            .expect("the same keys");
        for row in 0..rows {
            let (place, before) = (place_of(column, row), place_of(old, row));
            assert_eq!(place.is_none(), before.is_none());
            if let (Some(place), Some(before)) = (place, before) {
                assert_eq!(column.cells[place].kind, old.cells[before].kind);
                assert_eq!(column.cells[place].size, old.cells[before].size);
            }
        }
    }
}

/// Which of the entries of a column is this row's.
fn place_of(column: &Column, row: usize) -> Option<usize> {
    column.entries.rows().position(|own| own == row)
}

fn written(rows: usize, sources: &[Source<'_>], failed: &[usize]) -> Written {
    assert!(sources.iter().all(|source| source.rows() == Some(rows)));
    let lengths = encode::lengths(rows, sources, failed).expect("short messages");
    let mut arena = Arena::take(block_size(&lengths));
    encode::fill(arena.bytes_mut(), sources, &lengths);
    let block = arena.bytes();
    let (starts, rest) = block.split_at(rows * 8);
    let (counts, bytes) = rest.split_at(rows * 8);
    assert_eq!(numbers(counts), lengths);
    assert_eq!(
        lengths.iter().map(|length| (*length).max(0)).sum::<i64>(),
        bytes.len() as i64
    );
    Written {
        bytes: bytes.to_vec(),
        starts: numbers(starts),
        lengths,
    }
}

fn strings<'a>(key: &[u8], bytes: bool, spans: Spans<'a>) -> Source<'a> {
    Source::Strings {
        key: encode::key_field(key),
        bytes,
        spans,
    }
}

fn numbers(raw: &[u8]) -> Vec<i64> {
    raw.chunks_exact(8)
        .map(|raw| i64::from_ne_bytes(raw.try_into().unwrap()))
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_passes() {
        for folder in ["corpus/messages", "corpus/spans"] {
            for file in std::fs::read_dir(folder).expect("in native/fuzz") {
                let bytes = std::fs::read(file.unwrap().path()).unwrap();
                super::messages(&bytes);
                super::spans(&bytes);
            }
        }
    }

    #[test]
    fn messages_of_the_corpus_are_read_alike_behind_others() {
        for file in std::fs::read_dir("corpus/messages").expect("in native/fuzz") {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            for place in 0..bytes.len().min(300) {
                for flip in [1, 2, 3, 4, 8, 0x10, 0x20, 0x40, 0x80, 0xFF] {
                    super::neighbours(&bytes, place, flip);
                }
            }
        }
    }
}
