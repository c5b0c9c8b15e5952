//! The values of one field in many records.

use super::program::{Node, Program, Unit};
use super::scan;
use crate::columnar::core::cells::{Cell, Kind};
use crate::columnar::core::entries::Entries;

pub struct Column {
    pub key: Vec<u8>,
    node: usize,
    pub wanted: bool,
    pub entries: Entries,
    /// The values, if they are wanted. Of a text, bytes or a symbol `bits` says where it begins and `count` how long it is,
    /// of a symbol in the list of its type's, `count` being that type.
    pub cells: Vec<Cell>,
    /// The bits of the numbers in lists.
    pub samples: Vec<u64>,
}

impl Column {
    /// With room for the values of so many records.
    pub fn new(key: &[u8], node: usize, wanted: bool, room: usize) -> Column {
        Column {
            key: key.to_vec(),
            node,
            wanted,
            entries: Entries::with_room(room),
            cells: Vec::with_capacity(if wanted { room } else { 0 }),
            samples: Vec::new(),
        }
    }

    /// Adds the value that begins at `at` of a record, which begins at `base`; where it ends. Null is no value.
    #[inline]
    pub fn add(
        &mut self,
        program: &Program,
        text: &[u8],
        at: usize,
        base: usize,
        row: usize,
    ) -> Option<usize> {
        let (mut node, mut begin) = (self.node, at);
        if let Node::Union(branches) = program.node(node) {
            let (index, behind) = scan::choice(text, at, branches.len())?;
            (node, begin) = (branches[index], behind);
        }
        if matches!(program.node(node), Node::Null) {
            return Some(begin);
        }
        let end = if self.wanted {
            let (cell, end) = self.read(program, node, text, begin, base)?;
            self.cells.push(cell);
            end
        } else {
            scan::skip(program, node, text, begin)?
        };
        self.entries.put(base + at, base + end, row).then_some(end)
    }

    /// Lets go of the values from this row on.
    pub fn take_back(&mut self, from: usize) {
        self.entries.take_back(from);
        // A value may have been read whose record broke off before it was noted.
        self.cells.truncate(self.entries.len());
    }

    #[inline]
    fn read(
        &mut self,
        program: &Program,
        node: usize,
        text: &[u8],
        at: usize,
        base: usize,
    ) -> Option<(Cell, usize)> {
        let cell = |kind, bits, count| Cell { kind, bits, count };
        let string = |kind, raw: &[u8], end: usize| {
            (cell(kind, (base + end - raw.len()) as u64, raw.len()), end)
        };
        match program.node(node) {
            Node::Boolean => scan::boolean(text, at)
                .map(|(value, end)| (cell(Kind::Boolean, u64::from(value), 0), end)),
            Node::Integer { small, unit } => {
                let (value, end) = scan::integer(text, at, *small)?;
                let kind = match unit {
                    Unit::Real => Kind::Double,
                    _ => Kind::Integer,
                };
                Some((cell(kind, unit.bits(value), 0), end))
            }
            Node::Float => {
                let (raw, end) = scan::fixed(text, at, 4)?;
                Some((cell(Kind::Double, widened(raw), 0), end))
            }
            Node::Double => {
                let (raw, end) = scan::fixed(text, at, 8)?;
                Some((cell(Kind::Double, bits(raw), 0), end))
            }
            Node::Text => {
                scan::string(text, at).map(|(raw, end)| string(Kind::Text, raw.as_bytes(), end))
            }
            Node::TextAsBytes => {
                scan::string(text, at).map(|(raw, end)| string(Kind::Bytes, raw.as_bytes(), end))
            }
            Node::Bytes { made: false, .. } => {
                scan::bytes(text, at).map(|(raw, end)| string(Kind::Bytes, raw, end))
            }
            Node::Fixed { size, made: false } => {
                scan::fixed(text, at, *size).map(|(raw, end)| string(Kind::Bytes, raw, end))
            }
            Node::Enum(symbols) => {
                let (index, end) = scan::choice(text, at, symbols.len())?;
                symbols[index].as_ref()?;
                Some((cell(Kind::Symbol, index as u64, node), end))
            }
            Node::Array(inner) => self.list(program, *inner, text, at),
            _ => {
                let end = scan::skip(program, node, text, at)?;
                Some((cell(Kind::Other, 0, 0), end))
            }
        }
    }

    fn list(
        &mut self,
        program: &Program,
        inner: usize,
        text: &[u8],
        at: usize,
    ) -> Option<(Cell, usize)> {
        let (begin, samples) = (self.samples.len(), &mut self.samples);
        let mut kind = Kind::Doubles;
        let end = match program.node(inner) {
            Node::Integer { small, unit } => {
                if *unit != Unit::Real {
                    kind = Kind::Integers;
                }
                scan::elements(text, at, |at| {
                    let (value, end) = scan::integer(text, at, *small)?;
                    samples.push(unit.bits(value));
                    Some(end)
                })
            }
            Node::Float => scan::floats::<4>(text, at, |raw| {
                samples.extend(raw.chunks_exact(4).map(widened));
            }),
            Node::Double => scan::floats::<8>(text, at, |raw| {
                samples.extend(raw.chunks_exact(8).map(bits));
            }),
            _ => {
                let end = scan::elements(text, at, |at| scan::skip(program, inner, text, at))?;
                let cell = Cell {
                    kind: Kind::Other,
                    bits: 0,
                    count: 0,
                };
                return Some((cell, end));
            }
        };
        let count = samples.len() - begin;
        let Some(end) = end else {
            samples.truncate(begin);
            return None;
        };
        let kind = if count == 0 { Kind::Integers } else { kind };
        let cell = Cell {
            kind,
            bits: begin as u64,
            count,
        };
        Some((cell, end))
    }
}

/// The bits of the float in these four bytes, as one of 64 bits.
#[inline(always)]
pub fn widened(raw: &[u8]) -> u64 {
    let bytes = raw.first_chunk().copied().unwrap_or_default();
    f64::from(f32::from_le_bytes(bytes)).to_bits()
}

/// The bits of the float in these eight bytes.
#[inline(always)]
pub fn bits(raw: &[u8]) -> u64 {
    u64::from_le_bytes(raw.first_chunk().copied().unwrap_or_default())
}
