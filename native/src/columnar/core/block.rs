//! Columns, all of them in one block of bytes: the place of each, and the writing of the parts common to all formats.
//!
//! The block begins with lines of 64-bit numbers, one number a row: the positions of the rows' records in line 0, then
//! one or two lines a column. Behind the lines, each at a multiple of 64, are the parts that have another shape.

use super::entries::Entries;
use super::spans::NULL;

/// Where parts begin, so that arrays of every dtype are aligned, also for vector instructions.
const ALIGNMENT: usize = 64;
/// A key is rare if fewer than one row in so many has it (as in `pipelines/data/sparsecolumn.py`).
const RARE: usize = 8;

/// The form of a column in the block; `pipelines/wire/compiled_columns.py` has the same, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Undecoded values: starts in `line`, lengths in the next.
    Wire,
    /// The same of a key that is wanted, whose values are of types that are not read here, or differ.
    Mixed,
    /// Spans of the texts in the payloads that were read: starts in `line`, lengths in the next.
    Text,
    /// Spans of texts in the bytes at `offset` of the block.
    Copied,
    /// As `Text`, but bytes.
    Bytes,
    /// One number a row in `line`.
    Integer,
    Double,
    /// The same, floats; one byte a row at `whole` says which are integers.
    Numbers,
    /// One byte a row at `offset`.
    Boolean,
    /// One array at `offset`: `(rows, *shape)`. With `whole`, that says which rows have integers.
    Dense,
    /// One array at `offset`: `(total, *shape)`, and its `rows + 1` splits at `splits`. With `whole` as above.
    Ragged,
    /// Undecoded values of a key that few rows have: `total` of them from the `offset`-th rare one on.
    Rare,
}

/// A column, and where in the block it is.
pub struct Part {
    pub key: Vec<u8>,
    /// Position of the first record that had the key.
    pub first: usize,
    pub form: Form,
    pub line: usize,
    /// Where one byte a row says whether it has the key; `None` if all have.
    pub mask: Option<usize>,
    /// Where one byte a row says whether its number, or all numbers of its list, are integers.
    pub whole: Option<usize>,
    /// Arrays: type of their elements (`NDArray.ValueType` of `protos/data.proto`), and the shape of each.
    pub element: u8,
    pub shape: Vec<u64>,
    pub total: usize,
    /// Size of the part at `offset`, if there is one.
    pub size: usize,
    pub offset: usize,
    pub splits: usize,
}

impl Part {
    /// A column of undecoded values among so many rows.
    pub fn undecoded(key: &[u8], first: usize, entries: &Entries, rows: usize) -> Part {
        Part {
            key: key.to_vec(),
            first,
            form: if entries.len() * RARE < rows {
                Form::Rare
            } else {
                Form::Wire
            },
            line: 0,
            mask: (entries.len() < rows).then_some(0),
            whole: None,
            element: 0,
            shape: Vec::new(),
            total: entries.len(),
            size: 0,
            offset: 0,
            splits: 0,
        }
    }

    /// A column of values of this form.
    pub fn of(form: Form, key: &[u8], first: usize, entries: &Entries, rows: usize) -> Part {
        Part {
            form,
            ..Part::undecoded(key, first, entries, rows)
        }
    }
}

/// Where everything is in a block of `size` bytes.
pub struct Layout {
    pub rows: usize,
    pub parts: Vec<Part>,
    pub lines: usize,
    /// Where rows, starts and lengths of the values of all rare keys are, `int64 (3, values)`, and how many.
    pub rare: (usize, usize),
    pub size: usize,
}

impl Layout {
    /// Gives each part its places.
    pub fn of(rows: usize, mut parts: Vec<Part>) -> Layout {
        let mut lines = 1;
        let mut rare = 0;
        for part in &mut parts {
            part.line = lines;
            match part.form {
                Form::Wire | Form::Mixed | Form::Text | Form::Copied | Form::Bytes => lines += 2,
                Form::Integer | Form::Double | Form::Numbers => lines += 1,
                Form::Rare => {
                    part.mask = None;
                    part.offset = rare;
                    rare += part.total;
                }
                Form::Boolean => part.size = rows,
                Form::Dense | Form::Ragged => {}
            }
        }
        let mut size = lines * rows * 8;
        let mut reserve = |bytes: usize| {
            let offset = size.next_multiple_of(ALIGNMENT);
            size = offset + bytes;
            offset
        };
        let rare = (reserve(rare * 3 * 8), rare);
        for part in &mut parts {
            part.mask = part.mask.map(|_| reserve(rows));
            part.whole = part.whole.map(|_| reserve(rows));
            match part.form {
                Form::Copied | Form::Boolean | Form::Dense => part.offset = reserve(part.size),
                Form::Ragged => {
                    part.splits = reserve((rows + 1) * 8);
                    part.offset = reserve(part.size);
                }
                _ => {}
            }
        }
        Layout {
            rows,
            parts,
            lines,
            rare,
            size,
        }
    }
}

/// A block while it is filled.
pub struct Filling<'a> {
    block: &'a mut [u8],
    layout: &'a Layout,
}

impl<'a> Filling<'a> {
    /// Begins with the positions of the rows' records, in a block of `layout.size` bytes.
    pub fn of(block: &'a mut [u8], layout: &'a Layout, positions: &[i64]) -> Filling<'a> {
        let mut filling = Filling { block, layout };
        numbers(
            filling.line(0),
            positions.iter().map(|position| *position as u64),
        );
        filling
    }

    /// Writes the flags of a part: which rows have the key.
    pub fn mask(&mut self, part: &Part, entries: &Entries) {
        if let Some(mask) = part.mask {
            self.flags(mask, entries, entries.rows().map(|_| 1));
        }
    }

    /// One byte a row at `offset`: that of its value, 0 where it has none.
    pub fn flags(&mut self, offset: usize, entries: &Entries, values: impl Iterator<Item = u8>) {
        let out = &mut self.block[offset..offset + self.layout.rows];
        if entries.len() < out.len() {
            out.fill(0);
        }
        for (row, value) in entries.rows().zip(values) {
            out[row] = value;
        }
    }

    /// Where the values stand: `Wire`, `Mixed` and `Rare`.
    pub fn undecoded(&mut self, part: &Part, entries: &Entries) {
        let starts = entries.extents.iter().map(|one| one.start as u64);
        let lengths = entries.extents.iter().map(|one| one.length as u64);
        if part.form != Form::Rare {
            self.spans(part, entries, starts, lengths);
            return;
        }
        let (at, count) = self.layout.rare;
        let line = |number: usize| {
            let start = at + (number * count + part.offset) * 8;
            start..start + part.total * 8
        };
        numbers(
            &mut self.block[line(0)],
            entries.rows().map(|row| row as u64),
        );
        numbers(&mut self.block[line(1)], starts);
        numbers(&mut self.block[line(2)], lengths);
    }

    /// One span a row: that of its value, null where it has none.
    pub fn spans(
        &mut self,
        part: &Part,
        entries: &Entries,
        starts: impl Iterator<Item = u64>,
        lengths: impl Iterator<Item = u64>,
    ) {
        spread(self.line(part.line), entries, 0, starts);
        spread(self.line(part.line + 1), entries, NULL as u64, lengths);
    }

    /// One number a row: the bits of its value, 0 where it has none.
    pub fn numbers(&mut self, part: &Part, entries: &Entries, bits: impl Iterator<Item = u64>) {
        spread(self.line(part.line), entries, 0, bits);
    }

    /// The `size` bytes at `offset`.
    pub fn bytes(&mut self, part: &Part) -> &mut [u8] {
        &mut self.block[part.offset..part.offset + part.size]
    }

    /// One array a row: `put` writes that of a value, which is all zeros where a row has none.
    pub fn arrays<V>(
        &mut self,
        part: &Part,
        entries: &Entries,
        values: impl Iterator<Item = V>,
        put: impl Fn(&mut [u8], V),
    ) {
        let rows = self.layout.rows;
        let out = self.bytes(part);
        let size = out.len().checked_div(rows).unwrap_or(0);
        if size == 0 {
            return;
        }
        if entries.len() == rows {
            for (place, value) in out.chunks_exact_mut(size).zip(values) {
                put(place, value);
            }
            return;
        }
        out.fill(0);
        for (row, value) in entries.rows().zip(values) {
            put(&mut out[row * size..(row + 1) * size], value);
        }
    }

    /// All arrays of a ragged part, one behind the other: `put` writes that of a value, which takes so many bytes.
    pub fn samples<V>(
        &mut self,
        part: &Part,
        values: impl Iterator<Item = (usize, V)>,
        put: impl Fn(&mut [u8], V),
    ) {
        let mut rest = self.bytes(part);
        for (size, value) in values {
            let (place, behind) = rest.split_at_mut(size);
            put(place, value);
            rest = behind;
        }
    }

    /// The splits of a ragged part: `counts` says how many samples each value has, rows without one have none.
    pub fn splits(&mut self, part: &Part, entries: &Entries, counts: impl Iterator<Item = u64>) {
        let rows = self.layout.rows;
        let out = &mut self.block[part.splits..part.splits + (rows + 1) * 8];
        let (mut sum, mut done) = (0u64, 0);
        for (row, count) in entries.rows().zip(counts) {
            fill(&mut out[done * 8..(row + 1) * 8], sum);
            done = row + 1;
            sum += count;
        }
        fill(&mut out[done * 8..], sum);
    }

    fn line(&mut self, number: usize) -> &mut [u8] {
        let size = self.layout.rows * 8;
        &mut self.block[number * size..(number + 1) * size]
    }
}

/// Writes numbers side by side.
pub fn numbers(out: &mut [u8], values: impl Iterator<Item = u64>) {
    for (place, value) in out.chunks_exact_mut(8).zip(values) {
        place.copy_from_slice(&value.to_ne_bytes());
    }
}

fn fill(out: &mut [u8], value: u64) {
    for place in out.chunks_exact_mut(8) {
        place.copy_from_slice(&value.to_ne_bytes());
    }
}

/// One number a row: that of its value, `gap` where it has none.
fn spread(out: &mut [u8], entries: &Entries, gap: u64, values: impl Iterator<Item = u64>) {
    if entries.len() * 8 == out.len() {
        return numbers(out, values);
    }
    fill(out, gap);
    for (row, value) in entries.rows().zip(values) {
        out[row * 8..row * 8 + 8].copy_from_slice(&value.to_ne_bytes());
    }
}
