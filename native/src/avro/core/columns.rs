//! The cells of a table to columns, all of them in one block of bytes.

use super::column::Column;
use super::program::{Node, Program};
use super::table::Table;
use crate::arena::Arena;
use crate::columnar::core::block::{Filling, Form, Layout, Part};
use crate::columnar::core::cells::{self, Kind};

/// The columns of this table. Those without any value are left out.
pub fn block(table: &Table, program: &Program) -> (Layout, Arena) {
    let rows = table.rows.len();
    let columns = || {
        let there = |column: &&Column| column.entries.len() > 0;
        table.columns.iter().filter(there)
    };
    let parts = columns()
        .map(|column| part(column, rows, program))
        .collect();
    let layout = Layout::of(rows, parts);
    let mut arena = Arena::take(layout.size);
    let mut out = Filling::of(arena.bytes_mut(), &layout, &table.rows);
    for (part, column) in layout.parts.iter().zip(columns()) {
        fill(&mut out, part, column, program);
    }
    (layout, arena)
}

fn part(column: &Column, rows: usize, program: &Program) -> Part {
    let (key, entries, cells) = (&column.key, &column.entries, &column.cells);
    if !column.wanted {
        return Part::of(Form::Wire, key, 0, entries, rows);
    }
    let mut part = Part::of(Form::Mixed, key, 0, entries, rows);
    let (kind, count) = (cells[0].kind, cells[0].count);
    let alike = cells.iter().all(|cell| cell.kind == kind);
    match kind {
        Kind::Text if alike => part.form = Form::Text,
        Kind::Bytes if alike => part.form = Form::Bytes,
        Kind::Symbol if alike && cells.iter().all(|cell| cell.count == count) => {
            part.form = Form::Copied;
            part.total = symbols(program, count).map(<[u8]>::len).sum();
            part.size = part.total;
        }
        _ => cells::place(&mut part, cells, &column.samples, rows),
    }
    part
}

fn fill(out: &mut Filling<'_>, part: &Part, column: &Column, program: &Program) {
    let (entries, cells) = (&column.entries, &column.cells);
    out.mask(part, entries);
    match part.form {
        Form::Text | Form::Bytes => {
            let starts = cells.iter().map(|cell| cell.bits);
            let lengths = cells.iter().map(|cell| cell.count as u64);
            out.spans(part, entries, starts, lengths);
        }
        Form::Copied => {
            let node = cells[0].count;
            let places: Vec<(u64, u64)> = symbols(program, node)
                .scan(0, |at, symbol| {
                    let size = symbol.len() as u64;
                    *at += size;
                    Some((*at - size, size))
                })
                .collect();
            let own = || cells.iter().map(|cell| places[cell.bits as usize]);
            out.spans(
                part,
                entries,
                own().map(|place| place.0),
                own().map(|place| place.1),
            );
            let texts: Vec<u8> = symbols(program, node).flatten().copied().collect();
            out.bytes(part).copy_from_slice(&texts);
        }
        _ => cells::fill(out, part, entries, cells, &column.samples),
    }
}

/// The symbols of an enum.
fn symbols(program: &Program, node: usize) -> impl Iterator<Item = &[u8]> {
    let symbols: &[Option<Vec<u8>>] = match program.node(node) {
        Node::Enum(symbols) => symbols,
        _ => &[],
    };
    symbols
        .iter()
        .map(|symbol| symbol.as_deref().unwrap_or_default())
}
