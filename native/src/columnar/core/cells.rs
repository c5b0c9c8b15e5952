//! The values of one key that were read, and the columns of numbers, booleans and lists of numbers that they make.

use super::block::{Filling, Form, Part, numbers};
use super::entries::Entries;

/// Integers up to here are exact in a float.
pub const EXACT: u64 = 1 << 53;

/// Element types of lists (`NDArray.ValueType` of `protos/data.proto`).
const DOUBLE: u8 = 0;
const INT64: u8 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Integer,
    Double,
    Boolean,
    /// A string that stands in the record as it is.
    Text,
    /// A string of JSON with escapes.
    Escaped,
    Bytes,
    /// A symbol of an enum.
    Symbol,
    /// A list of integers, or an empty one.
    Integers,
    /// A list of numbers with at least one float.
    Doubles,
    /// Anything else, and numbers that are no values.
    Other,
}

/// One value.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    pub kind: Kind,
    /// The bits of the number; of a list, where its numbers begin among the samples: the bits of integers in a list of
    /// integers, else of floats.
    pub bits: u64,
    /// How many numbers a list has.
    pub count: usize,
}

/// Gives a part the form of its values, if these are numbers, booleans or lists of numbers.
pub fn place(part: &mut Part, cells: &[Cell], samples: &[u64], rows: usize) {
    let all = |test: fn(&Cell) -> bool| cells.iter().all(test);
    match cells[0].kind {
        Kind::Integer if all(|cell| cell.kind == Kind::Integer) => part.form = Form::Integer,
        Kind::Double if all(|cell| cell.kind == Kind::Double) => part.form = Form::Double,
        Kind::Boolean if all(|cell| cell.kind == Kind::Boolean) => part.form = Form::Boolean,
        Kind::Integer | Kind::Double if all(is_number) => {
            part.form = Form::Numbers;
            part.whole = Some(0);
        }
        Kind::Integers | Kind::Doubles
            if all(|cell| matches!(cell.kind, Kind::Integers | Kind::Doubles)) =>
        {
            place_lists(part, cells, samples, rows);
        }
        _ => {}
    }
}

/// Writes the values of a part that `place` has given a form; where they stand, of another part.
pub fn fill(
    out: &mut Filling<'_>,
    part: &Part,
    entries: &Entries,
    cells: &[Cell],
    samples: &[u64],
) {
    if let Some(whole) = part.whole {
        let flags = cells
            .iter()
            .map(|cell| u8::from(matches!(cell.kind, Kind::Integer | Kind::Integers)));
        out.flags(whole, entries, flags);
    }
    match part.form {
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
            put_samples(place, part, samples, cell);
        }),
        Form::Ragged => {
            out.splits(part, entries, cells.iter().map(|cell| cell.count as u64));
            let cells = cells.iter().map(|cell| (cell.count * 8, cell));
            out.samples(part, cells, |place, cell| {
                put_samples(place, part, samples, cell);
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

fn place_lists(part: &mut Part, cells: &[Cell], samples: &[u64], rows: usize) {
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

fn put_samples(out: &mut [u8], part: &Part, samples: &[u64], cell: &Cell) {
    let start = cell.bits as usize;
    let own = samples[start..start + cell.count].iter();
    if part.element == DOUBLE && cell.kind == Kind::Integers {
        numbers(out, own.map(|bits| (*bits as i64 as f64).to_bits()));
    } else {
        numbers(out, own.copied());
    }
}
