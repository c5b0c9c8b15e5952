//! The cells of a table to columns, all of them in one block of bytes.

use super::column::Column;
use super::scan::unescaped;
use super::stated::Stated;
use super::table::Table;
use crate::arena::Arena;
use crate::columnar::core::block::{Filling, Form, Layout, Part};
use crate::columnar::core::cells::{self, Cell, Kind};

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
    let scalars = column.stated == Some(Stated::Text);
    match column.cells[0].kind {
        _ if column.left => {}
        Kind::Text if all(|cell| cell.kind == Kind::Text) => part.form = Form::Text,
        _ if scalars || all(|cell| matches!(cell.kind, Kind::Text | Kind::Escaped)) => {
            if let Some(texts) = texts(column, bytes) {
                copied = texts;
                part.form = Form::Copied;
                part.total = copied.text.len();
                part.size = part.total;
            }
        }
        _ => cells::place(&mut part, &column.cells, &column.samples, rows),
    }
    (part, copied)
}

fn fill(out: &mut Filling<'_>, part: &Part, column: &Column, copied: &Copied) {
    let entries = &column.entries;
    out.mask(part, entries);
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
        _ => cells::fill(out, part, entries, &column.cells, &column.samples),
    }
}

/// The texts of a column, and other scalars as they are written; `None` if a text is none.
fn texts(column: &Column, bytes: &[u8]) -> Option<Copied> {
    let mut copied = Copied::default();
    for extent in &column.entries.extents {
        let (start, length) = (extent.start as usize, extent.length as usize);
        if bytes[start] == b'"' {
            unescaped(&bytes[start + 1..start + length - 1], &mut copied.text)?;
        } else {
            copied.text.extend_from_slice(&bytes[start..start + length]);
        }
        copied.ends.push(copied.text.len());
    }
    Some(copied)
}
