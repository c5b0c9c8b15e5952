//! The values of one key in many records: their places, and if wanted the values themselves.

use super::scan::{self, Counts, Number, byte};
use super::stated::Stated;
use crate::columnar::core::cells::{Cell, Kind};
use crate::columnar::core::entries::Entries;

/// A key as records have it, in quotes.
struct Token {
    text: Vec<u8>,
    /// Its first bytes, and which bits of sixteen bytes they are.
    first: u128,
    bits: u128,
}

impl Token {
    fn of(key: &[u8]) -> Token {
        let text = [b"\"", key, b"\""].concat();
        let sixteen = |byte: fn(u8) -> u8| {
            let bytes = text.iter().take(16).rev();
            bytes.fold(0, |sum, one| sum << 8 | u128::from(byte(*one)))
        };
        Token {
            first: sixteen(|byte| byte),
            bits: sixteen(|_| u8::MAX),
            text,
        }
    }

    /// Where it ends, if it begins at `at`.
    #[inline(always)]
    fn ends(&self, text: &[u8], at: usize) -> Option<usize> {
        let rest = text.get(at..)?;
        let found = match rest.first_chunk() {
            Some(bytes) if self.text.len() <= 16 => {
                (u128::from_le_bytes(*bytes) ^ self.first) & self.bits == 0
            }
            _ => rest.starts_with(&self.text),
        };
        found.then_some(at + self.text.len())
    }
}

/// The values of one key.
pub struct Column {
    pub key: Vec<u8>,
    token: Token,
    pub wanted: bool,
    /// Position of the first record that had the key.
    pub first: usize,
    /// Which place of pointers begins with this key.
    pub root: Option<usize>,
    /// Whether values of another place stand for this key.
    pub hidden: bool,
    /// The type that its values are to be of.
    pub stated: Option<Stated>,
    /// Whether Python makes the values, which are wanted.
    pub left: bool,
    pub entries: Entries,
    /// The values, if they are wanted.
    pub cells: Vec<Cell>,
    /// The bits of the numbers in lists: of integers in a list of integers, else of floats.
    pub samples: Vec<u64>,
}

impl Column {
    /// A column that this record brings, with room for so many rows.
    pub fn new(key: &[u8], wanted: bool, position: usize, room: usize) -> Column {
        Column {
            key: key.to_vec(),
            token: Token::of(key),
            wanted,
            first: position,
            root: None,
            hidden: false,
            stated: None,
            left: false,
            entries: Entries::with_room(room),
            cells: Vec::with_capacity(if wanted { room } else { 0 }),
            samples: Vec::new(),
        }
    }

    /// Where the key ends, if it is this one that begins at `at`.
    #[inline(always)]
    pub fn key_ends(&self, text: &[u8], at: usize) -> Option<usize> {
        self.token.ends(text, at)
    }

    /// Adds the value that begins at `at` of a record, which begins at `base`; where it ends. Null is no value.
    #[inline]
    pub fn add(
        &mut self,
        text: &[u8],
        at: usize,
        base: usize,
        row: usize,
        counts: &mut Counts,
    ) -> Option<usize> {
        if self.entries.has(row) {
            // A key twice.
            return None;
        }
        let first = byte(text, at);
        if first == b'n' {
            return scan::skip(text, at, counts);
        }
        let end = if self.wanted {
            let (cell, end) = self.read(text, at, first, counts)?;
            self.cells.push(cell);
            end
        } else {
            scan::skip(text, at, counts)?
        };
        self.entries.put(base + at, base + end, row).then_some(end)
    }

    /// Where the word at `at` ends that stands for no number (NaN), which was not added: it is no value.
    #[cold]
    pub fn not_a_number(&self, text: &[u8], at: usize, row: usize) -> Option<usize> {
        // Of a key twice the last value counts.
        if self.entries.has(row) {
            return None;
        }
        scan::not_a_number(text, at)
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
        text: &[u8],
        at: usize,
        first: u8,
        counts: &mut Counts,
    ) -> Option<(Cell, usize)> {
        let cell = |kind, bits| Cell {
            kind,
            bits,
            count: 0,
        };
        match first {
            b'"' => {
                let (end, escaped) = scan::string(text, at)?;
                let kind = if escaped { Kind::Escaped } else { Kind::Text };
                Some((cell(kind, 0), end))
            }
            b'[' => self.list(text, at, counts),
            b'{' => scan::skip(text, at, counts).map(|end| (cell(Kind::Other, 0), end)),
            b't' | b'f' => scan::skip(text, at, counts)
                .map(|end| (cell(Kind::Boolean, u64::from(first == b't')), end)),
            _ => {
                let (number, end) = scan::number(text, at)?;
                let found = match number {
                    Number::Integer(integer) => cell(Kind::Integer, integer as u64),
                    Number::Float(float) => cell(Kind::Double, float.to_bits()),
                    Number::Beyond => cell(Kind::Other, 0),
                };
                Some((found, end))
            }
        }
    }

    fn list(&mut self, text: &[u8], start: usize, counts: &mut Counts) -> Option<(Cell, usize)> {
        let begin = self.samples.len();
        let before = *counts;
        counts.bracket();
        let mut kind = Kind::Integers;
        let mut at = scan::space(text, start + 1);
        if byte(text, at) == b']' {
            return Some((self.numbers(kind, begin), at + 1));
        }
        while matches!(byte(text, at), b'-' | b'0'..=b'9') {
            let (number, end) = scan::number(text, at)?;
            match number {
                Number::Integer(integer) if kind == Kind::Integers => {
                    self.samples.push(integer as u64)
                }
                Number::Integer(integer) => self.samples.push((integer as f64).to_bits()),
                Number::Float(float) => {
                    if kind == Kind::Integers {
                        kind = Kind::Doubles;
                        for sample in &mut self.samples[begin..] {
                            *sample = (*sample as i64 as f64).to_bits();
                        }
                    }
                    self.samples.push(float.to_bits());
                }
                Number::Beyond => break,
            }
            at = scan::space(text, end);
            match byte(text, at) {
                b',' => {
                    counts.comma();
                    at = scan::space(text, at + 1);
                }
                b']' => return Some((self.numbers(kind, begin), at + 1)),
                _ => return None,
            }
        }
        // A list of something else.
        self.samples.truncate(begin);
        *counts = before;
        let cell = Cell {
            kind: Kind::Other,
            bits: 0,
            count: 0,
        };
        Some((cell, scan::skip(text, start, counts)?))
    }

    fn numbers(&self, kind: Kind, begin: usize) -> Cell {
        Cell {
            kind,
            bits: begin as u64,
            count: self.samples.len() - begin,
        }
    }
}
