//! The cells of a table to columns, all of them in one block of bytes.

use super::column::{Cell, Column, Kind};
use super::decimal::EXACT;
use super::scan::unescaped;
use super::table::Table;
use crate::arena::Arena;
use crate::columnar::core::block::{Filling, Form, Layout, Part, numbers};

/// Element types of lists (`NDArray.ValueType` of `protos/data.proto`).
const DOUBLE: u8 = 0;
const INT64: u8 = 4;

/// Texts without their escapes, one behind the other, and where each ends.
#[derive(Default)]
struct Copied {
    text: Vec<u8>,
    ends: Vec<usize>,
}

/// The columns of this table, which was read from these bytes. Those without any value are left out.
pub fn block(table: &Table, bytes: &[u8]) -> (Layout, Arena) {
    let rows = table.rows.len();
    let columns = || table.in_order().filter(|column| column.entries.len() > 0);
    let (parts, copied): (_, Vec<_>) = columns().map(|column| part(column, rows, bytes)).unzip();
    let layout = Layout::of(rows, parts);
    let mut arena = Arena::take(layout.size);
    let mut out = Filling::of(arena.bytes_mut(), &layout, &table.rows);
    for ((part, column), copied) in layout.parts.iter().zip(columns()).zip(&copied) {
        fill(&mut out, part, column, copied);
    }
    (layout, arena)
}

fn part(column: &Column, rows: usize, bytes: &[u8]) -> (Part, Copied) {
    let (key, entries) = (&column.key, &column.entries);
    let mut copied = Copied::default();
    if !column.wanted {
        return (Part::undecoded(key, column.first, entries, rows), copied);
    }
    let mut part = Part::of(Form::Mixed, key, column.first, entries, rows);
    let all = |test: fn(&Cell) -> bool| column.cells.iter().all(test);
    match column.cells[0].kind {
        Kind::Integer if all(|cell| cell.kind == Kind::Integer) => part.form = Form::Integer,
        Kind::Double if all(|cell| cell.kind == Kind::Double) => part.form = Form::Double,
        Kind::Boolean if all(|cell| cell.kind == Kind::Boolean) => part.form = Form::Boolean,
        Kind::Text if all(|cell| cell.kind == Kind::Text) => part.form = Form::Text,
        Kind::Integer | Kind::Double if all(is_number) => {
            part.form = Form::Numbers;
            part.whole = Some(0);
        }
        Kind::Text | Kind::Escaped
            if all(|cell| matches!(cell.kind, Kind::Text | Kind::Escaped)) =>
        {
            if let Some(texts) = without_escapes(column, bytes) {
                copied = texts;
                part.form = Form::Copied;
                part.total = copied.text.len();
                part.size = part.total;
            }
        }
        Kind::Integers | Kind::Doubles
            if all(|cell| matches!(cell.kind, Kind::Integers | Kind::Doubles)) =>
        {
            place_lists(&mut part, column, rows);
        }
        _ => {}
    }
    (part, copied)
}

fn fill(out: &mut Filling<'_>, part: &Part, column: &Column, copied: &Copied) {
    let (entries, cells) = (&column.entries, &column.cells);
    out.mask(part, entries);
    if let Some(whole) = part.whole {
        let flags = cells
            .iter()
            .map(|cell| u8::from(matches!(cell.kind, Kind::Integer | Kind::Integers)));
        out.flags(whole, entries, flags);
    }
    match part.form {
        Form::Text => {
            // Without the quotes.
            let starts = entries.extents.iter().map(|one| one.start as u64 + 1);
            let lengths = entries.extents.iter().map(|one| one.length as u64 - 2);
            out.spans(part, entries, starts, lengths);
        }
        Form::Copied => {
            let begins = std::iter::once(0).chain(copied.ends.iter().copied());
            let places = copied.ends.iter().zip(begins.clone());
            let sizes = places.map(|(end, begin)| (end - begin) as u64);
            out.spans(part, entries, begins.map(|begin| begin as u64), sizes);
            out.bytes(part).copy_from_slice(&copied.text);
        }
        Form::Integer | Form::Double => {
            out.numbers(part, entries, cells.iter().map(|cell| cell.bits));
        }
        Form::Numbers => {
            let bits = cells.iter().map(|cell| match cell.kind {
                Kind::Integer => (cell.bits as i64 as f64).to_bits(),
                _ => cell.bits,
            });
            out.numbers(part, entries, bits);
        }
        Form::Boolean => {
            out.flags(
                part.offset,
                entries,
                cells.iter().map(|cell| cell.bits as u8),
            );
        }
        Form::Dense => out.arrays(part, entries, cells.iter(), |place, cell| {
            samples(place, part, column, cell);
        }),
        Form::Ragged => {
            out.splits(part, entries, cells.iter().map(|cell| cell.count as u64));
            let cells = cells.iter().map(|cell| (cell.count * 8, cell));
            out.samples(part, cells, |place, cell| {
                samples(place, part, column, cell)
            });
        }
        _ => out.undecoded(part, entries),
    }
}

/// Whether a number can stand in a column of floats.
fn is_number(cell: &Cell) -> bool {
    cell.kind == Kind::Double
        || (cell.kind == Kind::Integer && (cell.bits as i64).unsigned_abs() <= EXACT)
}

/// The texts of a column; `None` if one of them is none.
fn without_escapes(column: &Column, bytes: &[u8]) -> Option<Copied> {
    let mut copied = Copied::default();
    for extent in &column.entries.extents {
        let (start, length) = (extent.start as usize, extent.length as usize);
        unescaped(&bytes[start + 1..start + length - 1], &mut copied.text)?;
        copied.ends.push(copied.text.len());
    }
    Some(copied)
}

fn place_lists(part: &mut Part, column: &Column, rows: usize) {
    let (cells, samples) = (&column.cells, &column.samples);
    let doubles = cells.iter().any(|cell| cell.kind == Kind::Doubles);
    let exact = |cell: &Cell| {
        let start = cell.bits as usize;
        cell.kind == Kind::Doubles
            || samples[start..start + cell.count]
                .iter()
                .all(|sample| (*sample as i64).unsigned_abs() <= EXACT)
    };
    if doubles && !cells.iter().all(exact) {
        return;
    }
    // Empty lists alone are floats, as numpy has it.
    let floats = doubles || cells.iter().all(|cell| cell.count == 0);
    if doubles && cells.iter().any(|cell| cell.kind == Kind::Integers) {
        part.whole = Some(0);
    }
    part.element = if floats { DOUBLE } else { INT64 };
    let first = cells[0].count;
    if cells.iter().all(|cell| cell.count == first) {
        part.form = Form::Dense;
        part.shape = vec![first as u64];
        part.size = rows * first * 8;
    } else {
        part.form = Form::Ragged;
        part.total = cells.iter().map(|cell| cell.count).sum();
        part.size = part.total * 8;
    }
}

fn samples(out: &mut [u8], part: &Part, column: &Column, cell: &Cell) {
    let start = cell.bits as usize;
    let own = column.samples[start..start + cell.count].iter();
    if part.element == DOUBLE && cell.kind == Kind::Integers {
        numbers(out, own.map(|bits| (*bits as i64 as f64).to_bits()));
    } else {
        numbers(out, own.copied());
    }
}
