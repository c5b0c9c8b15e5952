//! The cells of a table to columns, all of them in one block of bytes.
//!
//! The block begins with lines of 64-bit numbers, one number a row: the positions of the rows' payloads in line 0, then
//! one or two lines a column. Behind the lines, each at a multiple of 64, are the parts that have another shape.

use super::column::{Cell, Column, Kind};
use super::decimal::EXACT;
use super::scan::unescaped;
use super::table::{NULL, Table};

/// Where parts begin, so that arrays of every dtype are aligned, also for vector instructions.
const ALIGNMENT: usize = 64;
/// A key is rare if fewer than one row in so many has it (as in `pipelines/data/sparsecolumn.py`).
const RARE: usize = 8;

/// The form of a column in the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Undecoded values: starts in `line`, lengths in the next.
    Wire,
    /// The same of a key that is wanted, whose values are of types that are not read here, or differ.
    Mixed,
    /// Spans of strings in the records, without their quotes.
    Text,
    /// The same in the block: spans of the `total` bytes at `offset`.
    Copied,
    /// One number a row in `line`.
    Integer,
    Double,
    /// The same, floats; one byte a row at `whole` says which are integers.
    Numbers,
    /// One byte a row at `offset`.
    Boolean,
    /// Lists of numbers, `count` of each row, at `offset`. With floats, `whole` says which lists are of integers.
    DenseIntegers,
    DenseDoubles,
    /// Lists of numbers, `total` of all rows, at `offset`, and `rows + 1` splits at `splits`.
    RaggedIntegers,
    RaggedDoubles,
    /// Undecoded values of a key that few rows have: `total` of them from the `offset`-th rare one on.
    Rare,
}

/// A column, and where in the block it is.
pub struct Part<'a> {
    pub column: &'a Column,
    pub form: Form,
    pub line: usize,
    /// Where one byte a row says whether it has the key; `None` if all have.
    pub mask: Option<usize>,
    pub whole: Option<usize>,
    pub count: usize,
    pub total: usize,
    pub offset: usize,
    pub splits: usize,
    text: Vec<u8>,
    ends: Vec<usize>,
}

/// Where everything is in a block of `size` bytes.
pub struct Layout<'a> {
    pub parts: Vec<Part<'a>>,
    pub lines: usize,
    /// Where rows, starts and lengths of the values of all rare keys are, `int64 (3, values)`, and how many.
    pub rare: (usize, usize),
    pub size: usize,
}

/// The layout of a block for this table. Columns without any value are left out.
pub fn layout<'a>(table: &'a Table, bytes: &[u8]) -> Layout<'a> {
    let rows = table.rows.len();
    let mut layout = Layout {
        parts: Vec::with_capacity(table.columns.len() + table.fields.len()),
        lines: 1,
        rare: (0, 0),
        size: 0,
    };
    let (before, behind) = table
        .columns
        .split_at(table.of_first_row.min(table.columns.len()));
    for column in before.iter().chain(&table.fields).chain(behind) {
        if column.spans.is_empty() || column.hidden {
            continue;
        }
        let mut part = part(column, rows, bytes);
        part.line = layout.lines;
        layout.lines += match part.form {
            Form::Wire | Form::Mixed | Form::Text | Form::Copied => 2,
            Form::Integer | Form::Double | Form::Numbers => 1,
            _ => 0,
        };
        if part.form == Form::Rare {
            part.offset = layout.rare.1;
            layout.rare.1 += part.total;
        }
        layout.parts.push(part);
    }
    layout.size = layout.lines * rows * 8;
    layout.rare.0 = reserve(&mut layout.size, layout.rare.1 * 3 * 8);
    for part in &mut layout.parts {
        let size = &mut layout.size;
        if part.column.spans.len() < rows && part.form != Form::Rare {
            part.mask = Some(reserve(size, rows));
        }
        if part.whole.is_some() {
            part.whole = Some(reserve(size, rows));
        }
        match part.form {
            Form::Boolean => part.offset = reserve(size, rows),
            Form::Copied => part.offset = reserve(size, part.total),
            Form::DenseIntegers | Form::DenseDoubles => {
                part.offset = reserve(size, rows * part.count * 8);
            }
            Form::RaggedIntegers | Form::RaggedDoubles => {
                part.splits = reserve(size, (rows + 1) * 8);
                part.offset = reserve(size, part.total * 8);
            }
            _ => {}
        }
    }
    layout
}

/// Fills the block, which is of `layout.size` bytes, from the table.
pub fn fill(block: &mut [u8], layout: &Layout<'_>, table: &Table) {
    let rows = table.rows.len();
    numbers(
        line(block, 0, rows),
        table.rows.iter().map(|row| *row as u64),
    );
    for part in &layout.parts {
        let column = part.column;
        if let Some(mask) = part.mask {
            let mask = &mut block[mask..mask + rows];
            mask.fill(0);
            column.rows().for_each(|row| mask[row] = 1);
        }
        if let Some(whole) = part.whole {
            let whole = &mut block[whole..whole + rows];
            whole.fill(0);
            for (row, cell) in column.rows().zip(&column.cells) {
                whole[row] = u8::from(matches!(cell.kind, Kind::Integer | Kind::Integers));
            }
        }
        let starts = column.spans.iter().map(|span| span.start as u64);
        let lengths = column.spans.iter().map(|span| span.length as u64);
        let first = line(block, part.line.min(layout.lines - 1), rows);
        match part.form {
            Form::Wire | Form::Mixed => {
                spread(first, column, 0, starts);
                spread(
                    line(block, part.line + 1, rows),
                    column,
                    NULL as u64,
                    lengths,
                );
            }
            Form::Text => {
                // Without the quotes.
                spread(first, column, 0, starts.map(|start| start + 1));
                let lengths = lengths.map(|length| length - 2);
                spread(
                    line(block, part.line + 1, rows),
                    column,
                    NULL as u64,
                    lengths,
                );
            }
            Form::Copied => {
                let begins = std::iter::once(0).chain(part.ends.iter().copied());
                let sizes = part
                    .ends
                    .iter()
                    .zip(begins.clone())
                    .map(|(end, begin)| (end - begin) as u64);
                spread(first, column, 0, begins.map(|begin| begin as u64));
                spread(line(block, part.line + 1, rows), column, NULL as u64, sizes);
                block[part.offset..part.offset + part.total].copy_from_slice(&part.text);
            }
            Form::Integer | Form::Double => {
                spread(first, column, 0, column.cells.iter().map(|cell| cell.bits));
            }
            Form::Numbers => {
                let bits = column.cells.iter().map(|cell| match cell.kind {
                    Kind::Integer => (cell.bits as i64 as f64).to_bits(),
                    _ => cell.bits,
                });
                spread(first, column, 0, bits);
            }
            Form::Boolean => {
                let out = &mut block[part.offset..part.offset + rows];
                out.fill(0);
                for (row, cell) in column.rows().zip(&column.cells) {
                    out[row] = cell.bits as u8;
                }
            }
            Form::DenseIntegers | Form::DenseDoubles => {
                let size = part.count * 8;
                let out = &mut block[part.offset..part.offset + rows * size];
                if part.mask.is_some() {
                    out.fill(0);
                }
                for (row, cell) in column.rows().zip(&column.cells) {
                    samples(&mut out[row * size..(row + 1) * size], part, cell);
                }
            }
            Form::RaggedIntegers | Form::RaggedDoubles => {
                let splits = &mut block[part.splits..part.splits + (rows + 1) * 8];
                let mut counts = vec![0u64; rows + 1];
                for (row, cell) in column.rows().zip(&column.cells) {
                    counts[row + 1] = cell.count as u64;
                }
                let mut sum = 0;
                numbers(
                    splits,
                    counts.iter().map(|count| {
                        sum += count;
                        sum
                    }),
                );
                let mut at = part.offset;
                for cell in &column.cells {
                    samples(&mut block[at..at + cell.count * 8], part, cell);
                    at += cell.count * 8;
                }
            }
            Form::Rare => {
                let (at, count) = layout.rare;
                let place = |line: usize| {
                    let start = at + (line * count + part.offset) * 8;
                    start..start + part.total * 8
                };
                numbers(&mut block[place(0)], column.rows().map(|row| row as u64));
                numbers(&mut block[place(1)], starts);
                numbers(&mut block[place(2)], lengths);
            }
        }
    }
}

fn part<'a>(column: &'a Column, rows: usize, bytes: &[u8]) -> Part<'a> {
    let mut part = Part {
        column,
        form: Form::Wire,
        line: 0,
        mask: None,
        whole: None,
        count: 0,
        total: column.spans.len(),
        offset: 0,
        splits: 0,
        text: Vec::new(),
        ends: Vec::new(),
    };
    if !column.wanted {
        if column.spans.len() * RARE < rows {
            part.form = Form::Rare;
        }
        return part;
    }
    part.form = Form::Mixed;
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
            copy_texts(&mut part, bytes);
        }
        Kind::Integers | Kind::Doubles
            if all(|cell| matches!(cell.kind, Kind::Integers | Kind::Doubles)) =>
        {
            place_lists(&mut part);
        }
        _ => {}
    }
    part
}

/// Whether a number can stand in a column of floats.
fn is_number(cell: &Cell) -> bool {
    cell.kind == Kind::Double
        || (cell.kind == Kind::Integer && (cell.bits as i64).unsigned_abs() <= EXACT)
}

fn copy_texts(part: &mut Part<'_>, bytes: &[u8]) {
    let column = part.column;
    for span in &column.spans {
        let (start, length) = (span.start as usize, span.length as usize);
        if unescaped(&bytes[start + 1..start + length - 1], &mut part.text).is_none() {
            part.text.clear();
            return;
        }
        part.ends.push(part.text.len());
    }
    part.total = part.text.len();
    part.form = Form::Copied;
}

fn place_lists(part: &mut Part<'_>) {
    let cells = &part.column.cells;
    let samples = &part.column.samples;
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
    let first = cells[0].count;
    let dense = cells.iter().all(|cell| cell.count == first);
    part.count = first;
    part.total = cells.iter().map(|cell| cell.count).sum();
    part.form = match (dense, floats) {
        (true, true) => Form::DenseDoubles,
        (true, false) => Form::DenseIntegers,
        (false, true) => Form::RaggedDoubles,
        (false, false) => Form::RaggedIntegers,
    };
}

fn samples(out: &mut [u8], part: &Part<'_>, cell: &Cell) {
    let start = cell.bits as usize;
    let own = part.column.samples[start..start + cell.count].iter();
    let floats = matches!(part.form, Form::DenseDoubles | Form::RaggedDoubles);
    if floats && cell.kind == Kind::Integers {
        numbers(out, own.map(|bits| (*bits as i64 as f64).to_bits()));
    } else {
        numbers(out, own.copied());
    }
}

/// One number a row: that of its value, `gap` where it has none.
fn spread(out: &mut [u8], column: &Column, gap: u64, values: impl Iterator<Item = u64>) {
    if column.spans.len() * 8 == out.len() {
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
