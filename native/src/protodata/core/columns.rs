//! The cells of a table to columns, all of them in one block of bytes.
//!
//! The block begins with lines of 64-bit numbers, one number a row: the rows' positions in line 0, then one or two
//! lines a column. Behind the lines, each at a multiple of 64, are the parts that have another shape.

use super::column::Column;
use super::table::{NULL, Table};
use super::value::{BOOL, Cell, Kind};

/// Where parts begin, so that arrays of every dtype are aligned, also for vector instructions.
const ALIGNMENT: usize = 64;
/// A key is rare if fewer than one row in so many has it (as in `pipelines/data/sparsecolumn.py`).
const RARE: usize = 8;

/// The form of a column in the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Undecoded entries: starts in `line`, lengths in the next.
    Wire,
    /// The same of a key that is wanted, whose values are of types that are not read here, or differ.
    Mixed,
    /// Spans of the strings themselves.
    Text,
    Bytes,
    /// One number a row in `line`.
    Integer,
    Double,
    /// One byte a row at `offset`.
    Boolean,
    /// One array at `offset`: `(rows, *shape)`.
    Dense,
    /// One array at `offset`: `(total, *shape)`, and its `rows + 1` splits at `splits`.
    Ragged,
    /// Undecoded entries of a key that few rows have: `total` of them from the `offset`-th rare one on.
    Rare,
}

/// A column, and where in the block it is.
#[derive(Clone, Debug)]
pub struct Part {
    /// Index of the column in the table.
    pub column: usize,
    pub form: Form,
    pub line: usize,
    /// Where one byte a row says whether it has the key; `None` if all have.
    pub mask: Option<usize>,
    pub element: u8,
    pub shape: Vec<u64>,
    pub total: usize,
    pub offset: usize,
    pub splits: usize,
}

/// Where everything is in a block of `size` bytes.
pub struct Layout {
    pub parts: Vec<Part>,
    pub lines: usize,
    /// Where rows, starts and lengths of the entries of all rare keys are, `int64 (3, entries)`, and how many.
    pub rare: (usize, usize),
    pub size: usize,
}

/// The layout of a block for this table. Columns without any value are left out.
pub fn layout(table: &Table) -> Layout {
    let rows = table.rows.len();
    let mut layout = Layout {
        parts: Vec::with_capacity(table.columns.len()),
        lines: 1,
        rare: (0, 0),
        size: 0,
    };
    for (index, column) in table.columns.iter().enumerate() {
        if column.starts.is_empty() {
            continue;
        }
        let form = form(column, rows);
        let line = layout.lines;
        layout.lines += match form {
            Form::Wire | Form::Mixed | Form::Text | Form::Bytes => 2,
            Form::Integer | Form::Double => 1,
            _ => 0,
        };
        let mut part = Part {
            column: index,
            form,
            line,
            mask: None,
            element: 0,
            shape: Vec::new(),
            total: rows,
            offset: 0,
            splits: 0,
        };
        if form == Form::Rare {
            part.offset = layout.rare.1;
            part.total = column.starts.len();
            layout.rare.1 += part.total;
        }
        if matches!(form, Form::Dense | Form::Ragged) {
            let first = first(column);
            let shape = shape_of(column, first);
            part.element = first.element;
            part.shape = shape[usize::from(form == Form::Ragged)..].to_vec();
            if form == Form::Ragged {
                part.total = column
                    .cells
                    .iter()
                    .map(|cell| shape_of(column, cell)[0] as usize)
                    .sum();
            }
        }
        layout.parts.push(part);
    }
    layout.size = layout.lines * rows * 8;
    layout.rare.0 = reserve(&mut layout.size, layout.rare.1 * 3 * 8);
    for part in &mut layout.parts {
        let column = &table.columns[part.column];
        if column.starts.len() < rows && part.form != Form::Rare {
            part.mask = Some(reserve(&mut layout.size, rows));
        }
        match part.form {
            Form::Boolean => part.offset = reserve(&mut layout.size, rows),
            Form::Dense => part.offset = reserve(&mut layout.size, rows * first(column).size),
            Form::Ragged => {
                part.splits = reserve(&mut layout.size, (rows + 1) * 8);
                part.offset = reserve(
                    &mut layout.size,
                    column.cells.iter().map(|cell| cell.size).sum(),
                );
            }
            _ => {}
        }
    }
    layout
}

/// Fills the block, which is of `layout.size` bytes, from the table and the bytes that it was read from.
pub fn fill(block: &mut [u8], layout: &Layout, table: &Table, bytes: &[u8]) {
    let rows = table.rows.len();
    numbers(
        line(block, 0, rows),
        table.rows.iter().map(|row| *row as u64),
    );
    for part in &layout.parts {
        let column = &table.columns[part.column];
        if let Some(mask) = part.mask {
            let mask = &mut block[mask..mask + rows];
            mask.fill(0);
            column.rows().for_each(|row| mask[row] = 1);
        }
        let starts = column.starts.iter().map(|start| *start as u64);
        let lengths = column.lengths.iter().map(|length| *length as u64);
        let bits = column.cells.iter().map(|cell| cell.bits);
        match part.form {
            Form::Wire | Form::Mixed => {
                spread(line(block, part.line, rows), column, 0, starts);
                spread(
                    line(block, part.line + 1, rows),
                    column,
                    NULL as u64,
                    lengths,
                );
            }
            Form::Rare => {
                let (at, count) = layout.rare;
                let place = |line: usize| {
                    let start = at + (line * count + part.offset) * 8;
                    start..start + part.total * 8
                };
                let own = column.rows().map(|row| row as u64);
                numbers(&mut block[place(0)], own);
                numbers(&mut block[place(1)], starts);
                numbers(&mut block[place(2)], lengths);
            }
            Form::Text | Form::Bytes => {
                let sizes = column.cells.iter().map(|cell| cell.size as u64);
                spread(line(block, part.line, rows), column, 0, bits);
                spread(line(block, part.line + 1, rows), column, NULL as u64, sizes);
            }
            Form::Integer | Form::Double => spread(line(block, part.line, rows), column, 0, bits),
            Form::Boolean => {
                let out = &mut block[part.offset..part.offset + rows];
                if column.starts.len() < rows {
                    out.fill(0);
                }
                for (row, cell) in column.rows().zip(&column.cells) {
                    out[row] = cell.bits as u8;
                }
            }
            Form::Dense => {
                let size = first(column).size;
                let out = &mut block[part.offset..part.offset + rows * size];
                arrays(out, column, size, rows, bytes);
            }
            Form::Ragged => {
                let mut end = 0;
                let splits = column.cells.iter().map(|cell| {
                    end += shape_of(column, cell)[0];
                    end
                });
                numbers(
                    &mut block[part.splits..part.splits + (rows + 1) * 8],
                    std::iter::once(0).chain(splits),
                );
                let mut at = part.offset;
                for cell in &column.cells {
                    copy(&mut block[at..at + cell.size], cell, bytes);
                    at += cell.size;
                }
            }
        }
    }
}

fn form(column: &Column, rows: usize) -> Form {
    if !column.wanted {
        return if column.starts.len() * RARE < rows {
            Form::Rare
        } else {
            Form::Wire
        };
    }
    let first = first(column);
    let alike = |test: &dyn Fn(&Cell) -> bool| column.cells.iter().all(test);
    match first.kind {
        Kind::Array => array_form(column, first, column.starts.len() < rows),
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
    // What is ragged and has gaps is a list of arrays.
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

fn arrays(out: &mut [u8], column: &Column, size: usize, rows: usize, bytes: &[u8]) {
    if size == 0 {
        return;
    }
    if column.starts.len() == rows {
        for (place, cell) in out.chunks_exact_mut(size).zip(&column.cells) {
            copy(place, cell, bytes);
        }
        return;
    }
    out.fill(0);
    for (row, cell) in column.rows().zip(&column.cells) {
        copy(&mut out[row * size..(row + 1) * size], cell, bytes);
    }
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

/// One number a row: that of its entry, `gap` where it has none.
fn spread(out: &mut [u8], column: &Column, gap: u64, values: impl Iterator<Item = u64>) {
    if column.starts.len() * 8 == out.len() {
        return numbers(out, values);
    }
    for place in out.chunks_exact_mut(8) {
        place.copy_from_slice(&gap.to_ne_bytes());
    }
    for (row, value) in column.rows().zip(values) {
        out[row * 8..row * 8 + 8].copy_from_slice(&value.to_ne_bytes());
    }
}

fn line(block: &mut [u8], number: usize, rows: usize) -> &mut [u8] {
    &mut block[number * rows * 8..(number + 1) * rows * 8]
}

fn numbers(out: &mut [u8], values: impl Iterator<Item = u64>) {
    for (place, value) in out.chunks_exact_mut(8).zip(values) {
        place.copy_from_slice(&value.to_ne_bytes());
    }
}

fn reserve(size: &mut usize, bytes: usize) -> usize {
    let offset = size.next_multiple_of(ALIGNMENT);
    *size = offset + bytes;
    offset
}
