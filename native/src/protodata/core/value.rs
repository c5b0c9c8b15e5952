//! One value of a map entry, where it is of a type that makes a column of plain numbers, arrays or strings.

use super::schema::{Message, well_formed};
use super::wire::{delimited, is_text, varint};

/// Dimensions of an array that are counted here.
const DEEPEST_SHAPE: usize = 8;
/// Most elements of a shape, each length counted as 1 at least: a shape that no array can have is not plain.
const MOST_ELEMENTS: u64 = 1 << 40;
/// Element type of booleans, one byte each (`NDArray.ValueType`).
pub const BOOL: u8 = 12;

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    Bytes,
    Integer,
    Double,
    Boolean,
    Array,
    /// Something else, perhaps unknown: well-formed, and not looked into.
    Other,
}

/// A value; which fields mean something depends on `kind`.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    pub kind: Kind,
    /// Array: element type (`NDArray.ValueType`).
    pub element: u8,
    /// Array: its lengths are `dims[dims_at..dims_at + rank]`.
    pub rank: u8,
    pub dims_at: u32,
    /// Number: its bits. Array, text, bytes: where its bytes begin.
    pub bits: u64,
    /// Array, text, bytes: how many bytes it has.
    pub size: usize,
}

struct Member {
    tag: u8,
    start: usize,
    stop: usize,
    bits: u64,
}

/// The value of the `DataScheme` at `bytes[start..stop]`; the shape of an array is appended to `dims`.
///
/// `None` if it is framed in an unusual way, broken, or not of its declared type.
pub fn read(bytes: &[u8], start: usize, stop: usize, dims: &mut Vec<u64>) -> Option<Cell> {
    let mut member: Option<Member> = None;
    let mut value_type = 0;
    let mut at = start;
    while at < stop {
        let tag = bytes[at];
        at += 1;
        if tag == 0x68 || tag == 0x60 {
            let (number, next) = varint(bytes, at, stop)?;
            at = next;
            if tag == 0x68 {
                value_type = number;
            }
            continue;
        }
        let found = match tag {
            0x20 | 0x28 => {
                let (bits, next) = varint(bytes, at, stop)?;
                Member {
                    tag,
                    start: at,
                    stop: next,
                    bits,
                }
            }
            0x31 => {
                let raw = bytes.get(at..stop)?.first_chunk::<8>()?;
                Member {
                    tag,
                    start: at,
                    stop: at + 8,
                    bits: u64::from_le_bytes(*raw),
                }
            }
            0x12 | 0x1A | 0x3A | 0x42 | 0x4A | 0x52 | 0x5A | 0x72 => {
                let (start, stop) = delimited(bytes, at, stop)?;
                Member {
                    tag,
                    start,
                    stop,
                    bits: 0,
                }
            }
            _ => return None,
        };
        at = found.stop;
        // Of two members the last counts, or they are merged: not for us to do.
        if member.replace(found).is_some() {
            return None;
        }
    }
    cell(bytes, value_type, &member?, dims)
}

fn cell(bytes: &[u8], value_type: u64, member: &Member, dims: &mut Vec<u64>) -> Option<Cell> {
    let content = &bytes[member.start..member.stop];
    if member.tag == 0x12 && !is_text(content) {
        return None;
    }
    let kind = match (value_type, member.tag) {
        (0, 0x42) => return array(bytes, member.start, member.stop, dims),
        (1, 0x12) => Kind::Text,
        (2, 0x1A) => Kind::Bytes,
        (4, 0x31) => Kind::Double,
        (5, 0x20) => Kind::Integer,
        (6, 0x28) => return (member.bits <= 1).then_some(number(Kind::Boolean, member.bits)),
        (0..=2 | 4..=6, _) => return None,
        _ => return sound(content, member.tag).then_some(number(Kind::Other, 0)),
    };
    if matches!(kind, Kind::Double | Kind::Integer) {
        return Some(number(kind, member.bits));
    }
    Some(Cell {
        size: content.len(),
        ..number(kind, member.start as u64)
    })
}

fn number(kind: Kind, bits: u64) -> Cell {
    Cell {
        kind,
        element: 0,
        rank: 0,
        dims_at: 0,
        bits,
        size: 0,
    }
}

fn sound(content: &[u8], tag: u8) -> bool {
    let message = match tag {
        0x3A => Message::List,
        0x42 => Message::Array,
        0x4A => Message::Image,
        0x52 => Message::Box,
        0x5A => Message::Map,
        0x72 => Message::Point,
        // Numbers, bytes and texts have been looked at already.
        _ => return true,
    };
    well_formed(content, message)
}

fn array(bytes: &[u8], start: usize, stop: usize, dims: &mut Vec<u64>) -> Option<Cell> {
    let dims_at = dims.len();
    let (mut shape, mut buffer) = (None, None);
    let mut element = 0;
    let mut at = start;
    while at < stop {
        let tag = bytes[at];
        at += 1;
        if tag == 0x10 {
            (element, at) = varint(bytes, at, stop)?;
            continue;
        }
        let field = delimited(bytes, at, stop)?;
        at = field.1;
        let twice = match tag {
            0x0A => shape.replace(field),
            0x1A => buffer.replace(field),
            _ => return None,
        };
        if twice.is_some() {
            return None;
        }
    }
    let buffer = buffer?;
    let mut count = 1u64;
    let mut bound = 1u64;
    let (mut place, end) = shape.unwrap_or((0, 0));
    while place < end {
        let (length, next) = varint(bytes, place, end)?;
        place = next;
        dims.push(length);
        count = count.checked_mul(length)?;
        bound = bound
            .checked_mul(length.max(1))
            .filter(|bound| *bound <= MOST_ELEMENTS)?;
    }
    let rank = dims.len() - dims_at;
    if rank > DEEPEST_SHAPE {
        return None;
    }
    let Some(width) = element_width(element) else {
        // BFLOAT16 is left to the caller, whose packages decide on its type.
        return (element == 3).then_some(number(Kind::Other, 0));
    };
    let size = usize::try_from(count).ok()?.checked_mul(width)?;
    if size > buffer.1 - buffer.0 {
        return None;
    }
    Some(Cell {
        kind: Kind::Array,
        element: element as u8,
        rank: rank as u8,
        dims_at: u32::try_from(dims_at).ok()?,
        bits: buffer.0 as u64,
        size,
    })
}

/// Bytes of an element of an array; `None` for those that have no dtype of their own.
pub fn element_width(element: u64) -> Option<usize> {
    match element {
        0 | 4 | 8 => Some(8),
        1 | 5 | 9 => Some(4),
        2 | 6 | 10 => Some(2),
        7 | 11 | 12 => Some(1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(bytes: &[u8]) -> (Option<Cell>, Vec<u64>) {
        let mut dims = Vec::new();
        (read(bytes, 0, bytes.len(), &mut dims), dims)
    }

    #[test]
    fn numbers_and_strings_are_read() {
        let (cell, _) = read_all(b"\x20\x85\x01\x68\x05");
        assert!(cell.is_some_and(|cell| cell.kind == Kind::Integer && cell.bits == 133));
        let (cell, _) = read_all(b"\x68\x01\x12\x02ab");
        assert!(
            cell.is_some_and(|cell| cell.kind == Kind::Text && (cell.bits, cell.size) == (4, 2))
        );
        assert!(read_all(b"\x12\x02\xff\xff\x68\x01").0.is_none());
        assert!(read_all(b"\x20\x05\x68\x04").0.is_none());
        assert!(read_all(b"\x20\x05\x20\x05\x68\x05").0.is_none());
        assert!(read_all(b"\x68\x05").0.is_none());
    }

    #[test]
    fn arrays_are_read_with_their_shape() {
        let (cell, dims) = read_all(b"\x42\x0c\x0a\x02\x01\x02\x10\x06\x1a\x04abcd");
        let cell = cell.expect("plain");
        assert_eq!(
            (cell.element, cell.rank, cell.bits, cell.size),
            (6, 2, 10, 4)
        );
        assert_eq!(dims, [1, 2]);
    }

    #[test]
    fn shapes_that_no_array_has_are_not_plain() {
        // Too few bytes; a negative length; lengths whose product overflows; 0 times very many.
        assert!(
            read_all(b"\x42\x0c\x0a\x02\x01\x03\x10\x06\x1a\x04abcd")
                .0
                .is_none()
        );
        assert!(
            read_all(b"\x42\x0d\x0a\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x1a\x00")
                .0
                .is_none()
        );
        let huge = b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f";
        let shape = [&huge[..], &huge[..], b"\x00"].concat();
        let body = [b"\x0a", &[shape.len() as u8][..], &shape, b"\x1a\x00"].concat();
        let scheme = [b"\x42", &[body.len() as u8][..], &body].concat();
        assert!(read_all(&scheme).0.is_none());
    }
}
