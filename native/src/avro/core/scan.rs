//! Values in the bytes of a record. Unusual ones are `None`, and left to Python: values that are cut off, numbers in
//! more bytes than they need or that their type has no room for, texts that are no UTF-8.

use super::program::{Node, Program};

/// Bytes of the longest number.
const LONGEST: usize = 10;

/// The number that begins at `at`, and where it ends.
#[inline(always)]
pub fn long(text: &[u8], at: usize) -> Option<(i64, usize)> {
    let first = *text.get(at)?;
    if first < 0x80 {
        return Some((unfolded(u64::from(first)), at + 1));
    }
    several(text, at)
}

fn several(text: &[u8], at: usize) -> Option<(i64, usize)> {
    let mut folded = 0;
    for (place, byte) in text.get(at..)?.iter().take(LONGEST).enumerate() {
        if place == LONGEST - 1 && *byte > 1 {
            return None;
        }
        folded |= u64::from(byte & 0x7F) << (7 * place);
        if *byte < 0x80 {
            return (*byte > 0).then(|| (unfolded(folded), at + place + 1));
        }
    }
    None
}

/// Numbers below 0 stand between the others.
#[inline(always)]
fn unfolded(folded: u64) -> i64 {
    (folded >> 1) as i64 ^ -((folded & 1) as i64)
}

/// An integer of 32 bits, if it is `small`, or 64, and where it ends.
#[inline(always)]
pub fn integer(text: &[u8], at: usize, small: bool) -> Option<(i64, usize)> {
    let (value, end) = long(text, at)?;
    (!small || i32::try_from(value).is_ok()).then_some((value, end))
}

/// The next `size` bytes, and where they end.
#[inline(always)]
pub fn fixed(text: &[u8], at: usize, size: usize) -> Option<(&[u8], usize)> {
    let end = at.checked_add(size)?;
    text.get(at..end).map(|bytes| (bytes, end))
}

/// The bytes whose length stands at `at`, and where they end.
#[inline(always)]
pub fn bytes(text: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let (size, begin) = long(text, at)?;
    fixed(text, begin, usize::try_from(size).ok()?)
}

/// The same of a text.
#[inline(always)]
pub fn string(text: &[u8], at: usize) -> Option<(&str, usize)> {
    let (raw, end) = bytes(text, at)?;
    Some((std::str::from_utf8(raw).ok()?, end))
}

/// Whether the byte at `at` says so, and where it ends.
#[inline(always)]
pub fn boolean(text: &[u8], at: usize) -> Option<(bool, usize)> {
    match text.get(at)? {
        0 => Some((false, at + 1)),
        1 => Some((true, at + 1)),
        _ => None,
    }
}

/// Which of `count` the number at `at` says, and where it ends.
#[inline(always)]
pub fn choice(text: &[u8], at: usize, count: usize) -> Option<(usize, usize)> {
    let (index, end) = long(text, at)?;
    let index = usize::try_from(index).ok()?;
    (index < count).then_some((index, end))
}

/// How many elements a block of an array or a map has that begins at `at`, and where the first of them begins. None: the
/// array ends there. No element is without bytes, so there are not more than bytes.
#[inline(always)]
pub fn block(text: &[u8], at: usize) -> Option<(usize, usize)> {
    let (mut count, mut begin) = long(text, at)?;
    if count < 0 {
        // The size of the block in bytes follows. It is not needed, and may be wrong.
        count = count.checked_neg()?;
        begin = long(text, begin)?.1;
    }
    let count = usize::try_from(count).ok()?;
    (count <= text.len() - begin).then_some((count, begin))
}

/// Calls `each` with where every element of an array or a map begins, which says where it ends; where the array ends.
#[inline(always)]
pub fn elements(
    text: &[u8],
    mut at: usize,
    mut each: impl FnMut(usize) -> Option<usize>,
) -> Option<usize> {
    loop {
        let (count, begin) = block(text, at)?;
        at = begin;
        if count == 0 {
            return Some(at);
        }
        for _ in 0..count {
            let end = each(at)?;
            // An element without bytes could be there without end.
            at = (end > at).then_some(end)?;
        }
    }
}

/// As `elements` of an array of floats, of so many bytes each: `each` is called with the bytes of many.
#[inline(always)]
pub fn floats<const SIZE: usize>(
    text: &[u8],
    mut at: usize,
    mut each: impl FnMut(&[u8]),
) -> Option<usize> {
    loop {
        let (count, begin) = block(text, at)?;
        if count == 0 {
            return Some(begin);
        }
        let (raw, end) = fixed(text, begin, count.checked_mul(SIZE)?)?;
        each(raw);
        at = end;
    }
}

/// Where the value of this type ends that begins at `at`.
pub fn skip(program: &Program, place: usize, text: &[u8], at: usize) -> Option<usize> {
    match program.node(place) {
        Node::Null => Some(at),
        Node::Boolean => boolean(text, at).map(|(_, end)| end),
        Node::Integer { small, .. } => integer(text, at, *small).map(|(_, end)| end),
        Node::Float => fixed(text, at, 4).map(|(_, end)| end),
        Node::Double => fixed(text, at, 8).map(|(_, end)| end),
        Node::Bytes { most, .. } => {
            let (raw, end) = bytes(text, at)?;
            (raw.len() <= *most).then_some(end)
        }
        Node::Fixed { size, .. } => fixed(text, at, *size).map(|(_, end)| end),
        Node::Text | Node::TextAsBytes => string(text, at).map(|(_, end)| end),
        Node::Enum(symbols) => {
            let (index, end) = choice(text, at, symbols.len())?;
            symbols[index].is_some().then_some(end)
        }
        Node::Array(inner) => match program.node(*inner) {
            Node::Float => floats::<4>(text, at, |_| {}),
            Node::Double => floats::<8>(text, at, |_| {}),
            _ => elements(text, at, |at| skip(program, *inner, text, at)),
        },
        Node::Map(inner) => elements(text, at, |at| {
            let (_, at) = string(text, at)?;
            skip(program, *inner, text, at)
        }),
        Node::Union(branches) => {
            let (index, at) = choice(text, at, branches.len())?;
            skip(program, branches[index], text, at)
        }
        Node::Record(fields) => fields
            .iter()
            .try_fold(at, |at, field| skip(program, field.node, text, at)),
        Node::Refused => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_are_written_with_the_fewest_bytes() {
        assert_eq!(long(b"\x00", 0), Some((0, 1)));
        assert_eq!(long(b"\x01", 0), Some((-1, 1)));
        assert_eq!(long(b"x\x80\x01", 1), Some((64, 3)));
        let lowest = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
        assert_eq!(long(lowest, 0), Some((i64::MIN, 10)));
        let odd: [&[u8]; 5] = [b"", b"\x80", b"\x80\x00", &[0xFF; 12], &[0xFF, 0xFF, 0]];
        for text in odd {
            assert_eq!(long(text, 0), None);
        }
        assert_eq!(long(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 0), None);
        assert_eq!(
            integer(b"\xfe\xff\xff\xff\x0f", 0, true),
            Some((i32::MAX.into(), 5))
        );
        assert_eq!(integer(b"\x80\x80\x80\x80\x10", 0, true), None);
    }

    #[test]
    fn blocks_have_no_more_elements_than_bytes() {
        assert_eq!(block(b"\x04ab", 0), Some((2, 1)));
        assert_eq!(block(b"\x06ab", 0), None);
        assert_eq!(block(b"\x03\x04ab", 0), Some((2, 2)));
        assert_eq!(block(b"\x03\x06ab", 0), Some((2, 2)));
        assert_eq!(block(b"\x05\x06ab", 0), None);
        assert_eq!(
            block(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", 0),
            None
        );
        assert_eq!(elements(b"\x02\x00\x00", 0, Some), None);
    }
}
