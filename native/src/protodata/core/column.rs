//! The entries of one key in many messages, and what they hold.

use super::mould::Mould;
use super::schema::{Message, well_formed};
use super::value::{self, Cell, Kind};
use super::wire::Range;

/// The entries of one key.
pub struct Column {
    pub key: Vec<u8>,
    pub wanted: bool,
    /// Position of the first message that had it.
    pub first: usize,
    /// Where each entry begins, its tag included, and its bytes. Rows without an entry take no place.
    pub starts: Vec<i64>,
    pub lengths: Vec<i64>,
    /// The row of each entry, rising; empty as long as entry i is that of row i.
    pub rows: Vec<i64>,
    /// The row behind the last one that has an entry.
    next: usize,
    /// The entries' values, if they are wanted.
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
            rows: Vec::new(),
            next: 0,
            cells: Vec::with_capacity(if wanted { room } else { 0 }),
            dims: Vec::new(),
            mould: None,
        }
    }

    /// Adds the entry at `at` as this row's if it is made as one before it was; where it ends.
    #[inline(always)]
    pub fn add_likely(&mut self, bytes: &[u8], (at, end): Range, row: usize) -> Option<usize> {
        let (cell, stop) = self.mould.as_ref()?.take(bytes, at, end)?;
        if !self.put(at, stop, row) {
            return None;
        }
        if self.wanted {
            self.cells.push(cell);
        }
        Some(stop)
    }

    /// Adds this entry, whose value is at `value`, as this row's.
    pub fn add(&mut self, bytes: &[u8], (at, stop): Range, value: Range, row: usize) -> Outcome {
        if !self.put(at, stop, row) {
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

    /// The rows that have an entry.
    pub fn rows(&self) -> impl Iterator<Item = usize> {
        (0..self.starts.len()).map(|place| self.rows.get(place).map_or(place, |row| *row as usize))
    }

    /// Lets go of the entry of this row, the last one.
    pub fn take_back(&mut self, row: usize) {
        if self.next != row + 1 {
            return;
        }
        self.starts.pop();
        self.lengths.pop();
        self.rows.pop();
        self.cells.truncate(self.starts.len());
        self.next = match self.rows.last() {
            Some(last) => *last as usize + 1,
            None => self.starts.len(),
        };
    }

    /// Whether this row, the last one so far, had no entry yet: then this is it.
    #[inline(always)]
    fn put(&mut self, at: usize, stop: usize, row: usize) -> bool {
        let without_gaps = self.next == row && self.rows.is_empty();
        if !without_gaps && !self.put_behind_gap(row) {
            return false;
        }
        self.next = row + 1;
        self.starts.push(at as i64);
        self.lengths.push((stop - at) as i64);
        true
    }

    #[inline(never)]
    fn put_behind_gap(&mut self, row: usize) -> bool {
        if self.next > row {
            return false;
        }
        if self.rows.is_empty() {
            self.rows.extend(0..self.starts.len() as i64);
        }
        self.rows.push(row as i64);
        true
    }
}
