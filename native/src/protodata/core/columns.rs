//! The cells of a table to columns, all of them in one block of bytes.

use super::column::Column;
use super::table::Table;
use super::value::{BOOL, Cell, Kind};
use crate::arena::Arena;
use crate::columnar::core::block::{Filling, Form, Layout, Part};

/// The columns of this table, which was read from these bytes. Those without any value are left out.
pub fn block(table: &Table, bytes: &[u8]) -> (Layout, Arena) {
    let rows = table.rows.len();
    let columns = || {
        table
            .columns
            .iter()
            .filter(|column| column.entries.len() > 0)
    };
    let layout = Layout::of(rows, columns().map(|column| part(column, rows)).collect());
    let mut arena = Arena::take(layout.size);
    let mut out = Filling::of(arena.bytes_mut(), &layout, &table.rows);
    for (part, column) in layout.parts.iter().zip(columns()) {
        fill(&mut out, part, column, bytes);
    }
    (layout, arena)
}

fn part(column: &Column, rows: usize) -> Part {
    let (key, entries) = (&column.key, &column.entries);
    if !column.wanted {
        return Part::undecoded(key, column.first, entries, rows);
    }
    let form = form(column, entries.len() < rows);
    let mut part = Part::of(form, key, column.first, entries, rows);
    if matches!(form, Form::Dense | Form::Ragged) {
        let first = first(column);
        let shape = shape_of(column, first);
        part.element = first.element;
        part.shape = shape[usize::from(form == Form::Ragged)..].to_vec();
    }
    match form {
        Form::Dense => part.size = rows * first(column).size,
        Form::Ragged => {
            part.total = column
                .cells
                .iter()
                .map(|cell| samples(column, cell) as usize)
                .sum();
            part.size = column.cells.iter().map(|cell| cell.size).sum();
        }
        _ => {}
    }
    part
}

fn fill(out: &mut Filling<'_>, part: &Part, column: &Column, bytes: &[u8]) {
    let entries = &column.entries;
    let bits = column.cells.iter().map(|cell| cell.bits);
    out.mask(part, entries);
    match part.form {
        Form::Text | Form::Bytes => {
            let sizes = column.cells.iter().map(|cell| cell.size as u64);
            out.spans(part, entries, bits, sizes);
        }
        Form::Integer | Form::Double => out.numbers(part, entries, bits),
        Form::Boolean => out.flags(part.offset, entries, bits.map(|bits| bits as u8)),
        Form::Dense => out.arrays(part, entries, column.cells.iter(), |place, cell| {
            copy(place, cell, bytes);
        }),
        Form::Ragged => {
            let counts = column.cells.iter().map(|cell| samples(column, cell));
            out.splits(part, entries, counts);
            let cells = column.cells.iter().map(|cell| (cell.size, cell));
            out.samples(part, cells, |place, cell| copy(place, cell, bytes));
        }
        _ => out.undecoded(part, entries),
    }
}

fn form(column: &Column, gaps: bool) -> Form {
    let first = first(column);
    let alike = |test: &dyn Fn(&Cell) -> bool| column.cells.iter().all(test);
    match first.kind {
        Kind::Array => array_form(column, first, gaps),
        Kind::Other => Form::Mixed,
        kind if !alike(&|cell| cell.kind == kind) => Form::Mixed,
        Kind::Text => Form::Text,
        Kind::Bytes => Form::Bytes,
        Kind::Integer => Form::Integer,
        Kind::Double => Form::Double,
        Kind::Boolean => Form::Boolean,
    }
}

fn array_form(column: &Column, first: &Cell, gaps: bool) -> Form {
    let lengths = shape_of(column, first);
    let of_type = |cell: &Cell| {
        cell.kind == Kind::Array && cell.element == first.element && cell.rank == first.rank
    };
    // Entries of one make share their shape.
    let of_shape = |cell: &Cell| cell.dims_at == first.dims_at || shape_of(column, cell) == lengths;
    if column
        .cells
        .iter()
        .all(|cell| of_type(cell) && of_shape(cell))
    {
        return Form::Dense;
    }
    // Ragged arrays with rows that lack the key become a list of arrays.
    let inner = |cell: &Cell| of_type(cell) && shape_of(column, cell)[1..] == lengths[1..];
    if !gaps && first.rank > 0 && column.cells.iter().all(inner) {
        return Form::Ragged;
    }
    Form::Mixed
}

/// The first value; columns without any have been left out before this is asked.
fn first(column: &Column) -> &Cell {
    column.cells.first().expect("a column has a value")
}

fn shape_of<'a>(column: &'a Column, cell: &Cell) -> &'a [u64] {
    let start = cell.dims_at as usize;
    &column.dims[start..start + usize::from(cell.rank)]
}

/// How many samples an array of a ragged column has.
fn samples(column: &Column, cell: &Cell) -> u64 {
    shape_of(column, cell)[0]
}

fn copy(out: &mut [u8], cell: &Cell, bytes: &[u8]) {
    let start = cell.bits as usize;
    let from = &bytes[start..start + cell.size];
    if cell.element == BOOL {
        for (place, byte) in out.iter_mut().zip(from) {
            *place = u8::from(*byte != 0);
        }
    } else {
        out.copy_from_slice(from);
    }
}
