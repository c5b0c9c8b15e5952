//! The entries of one key in many messages, and their values.

use super::mould::Mould;
use super::schema::{Message, well_formed};
use super::value::{self, Cell, Kind};
use super::wire::Range;
use crate::columnar::core::entries::Entries;

/// The entries of one key.
pub struct Column {
    pub key: Vec<u8>,
    pub wanted: bool,
    /// Position of the first message that had it.
    pub first: usize,
    /// Where each entry begins, its tag included, and its bytes.
    pub entries: Entries,
    /// The entries' values, if they are wanted.
    pub cells: Vec<Cell>,
    pub dims: Vec<u64>,
    /// How the last entry was made that was taken apart.
    mould: Option<Mould>,
}

/// The outcome of reading an entry or a message.
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
            entries: Entries::with_room(room),
            cells: Vec::with_capacity(if wanted { room } else { 0 }),
            dims: Vec::new(),
            mould: None,
        }
    }

    /// Adds the entry at `at` as this row's if it is made as one before it was; where it ends.
    #[inline(always)]
    pub fn add_likely(&mut self, bytes: &[u8], (at, end): Range, row: usize) -> Option<usize> {
        let (cell, stop) = self.mould.as_ref()?.take(bytes, at, end)?;
        if !self.entries.put(at, stop, row) {
            return None;
        }
        if self.wanted {
            self.cells.push(cell);
        }
        Some(stop)
    }

    /// Adds this entry, whose value is at `value`, as this row's.
    pub fn add(&mut self, bytes: &[u8], (at, stop): Range, value: Range, row: usize) -> Outcome {
        if !self.entries.put(at, stop, row) {
            return Outcome::Odd;
        }
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

    /// Lets go of the entry of this row, the last one.
    pub fn take_back(&mut self, row: usize) {
        self.entries.take_back(row);
        self.cells.truncate(self.entries.len());
    }
}
