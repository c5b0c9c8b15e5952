//! The entries of one key in many messages, and what they hold.

use super::mould::Mould;
use super::schema::{Message, well_formed};
use super::table::NULL;
use super::value::{self, Cell, Kind};
use super::wire::Range;

/// The entries of one key.
pub struct Column {
    pub key: Vec<u8>,
    pub wanted: bool,
    /// Position of the first message that had it.
    pub first: usize,
    /// Where each row's entry begins, its tag included, and its bytes; -1 bytes where a row has none.
    pub starts: Vec<i64>,
    pub lengths: Vec<i64>,
    pub gaps: bool,
    /// The rows' values, if they are wanted; what stands in a gap means nothing.
    pub cells: Vec<Cell>,
    pub dims: Vec<u64>,
    /// How the last entry was made that was taken apart.
    mould: Option<Mould>,
}

/// What became of an entry or a message.
pub enum Outcome {
    Plain,
    /// Understood, but for a value.
    Wrong,
    Odd,
}

const NOTHING: Cell = Cell {
    kind: Kind::Other,
    element: 0,
    rank: 0,
    dims_at: 0,
    bits: 0,
    size: 0,
};

impl Column {
    /// A column that this message brings, with room for so many rows.
    pub fn new(key: &[u8], wanted: bool, position: usize, room: usize) -> Column {
        Column {
            key: key.to_vec(),
            wanted,
            first: position,
            starts: Vec::with_capacity(room),
            lengths: Vec::with_capacity(room),
            gaps: false,
            cells: Vec::with_capacity(if wanted { room } else { 0 }),
            dims: Vec::new(),
            mould: None,
        }
    }

    /// Adds the entry at `at` as this row's if it is made as one before it was; where it ends.
    #[inline(always)]
    pub fn add_likely(&mut self, bytes: &[u8], (at, end): Range, row: usize) -> Option<usize> {
        let (cell, stop) = self.mould.as_ref()?.take(bytes, at, end)?;
        if self.starts.len() > row {
            return None;
        }
        self.fill(row);
        self.put(at, stop);
        if self.wanted {
            self.cells.push(cell);
        }
        Some(stop)
    }

    /// Adds this entry, whose value is at `value`, as this row's.
    pub fn add(&mut self, bytes: &[u8], (at, stop): Range, value: Range, row: usize) -> Outcome {
        if self.starts.len() > row {
            return Outcome::Odd;
        }
        self.fill(row);
        self.put(at, stop);
        let dims = self.dims.len();
        let cell = value::read(bytes, value.0, value.1, &mut self.dims);
        if !self.wanted || !cell.is_some_and(|cell| cell.kind == Kind::Array) {
            self.dims.truncate(dims);
        }
        if let Some(cell) = cell {
            self.mould = Mould::of(bytes, at, value.0, stop, cell);
        } else if !well_formed(&bytes[value.0..value.1], Message::Scheme) {
            return Outcome::Odd;
        }
        if !self.wanted {
            return Outcome::Plain;
        }
        self.cells.push(cell.unwrap_or(NOTHING));
        if cell.is_some() {
            Outcome::Plain
        } else {
            Outcome::Wrong
        }
    }

    /// Gaps up to this row.
    #[inline(always)]
    pub fn fill(&mut self, row: usize) {
        if self.starts.len() != row {
            self.put_gaps(row);
        }
    }

    /// Lets go of all rows from this one on.
    pub fn truncate(&mut self, row: usize) {
        self.starts.truncate(row);
        self.lengths.truncate(row);
        self.cells.truncate(row);
    }

    #[inline(always)]
    fn put(&mut self, at: usize, stop: usize) {
        self.starts.push(at as i64);
        self.lengths.push((stop - at) as i64);
    }

    #[cold]
    fn put_gaps(&mut self, row: usize) {
        self.gaps = true;
        self.starts.resize(row, 0);
        self.lengths.resize(row, NULL);
        if self.wanted {
            self.cells.resize(row, NOTHING);
        }
    }
}
