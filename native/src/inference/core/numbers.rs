//! Lists of numbers or booleans, flat or nested, as the bytes of an array.

use crate::json::core::scan::{Number, byte, number, space};

/// The type of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    Fp64,
    Fp32,
    Int64,
    Int32,
    Int16,
    Int8,
    Uint64,
    Uint32,
    Uint16,
    Uint8,
    Bool,
}

impl Element {
    /// By the protocol's name for it; others are left to Python.
    pub fn named(name: &[u8]) -> Option<Element> {
        Some(match name {
            b"FP64" => Element::Fp64,
            b"FP32" => Element::Fp32,
            b"INT64" => Element::Int64,
            b"INT32" => Element::Int32,
            b"INT16" => Element::Int16,
            b"INT8" => Element::Int8,
            b"UINT64" => Element::Uint64,
            b"UINT32" => Element::Uint32,
            b"UINT16" => Element::Uint16,
            b"UINT8" => Element::Uint8,
            b"BOOL" => Element::Bool,
            _ => return None,
        })
    }
}

/// Nested levels that are followed here.
const LEVELS: usize = 32;

/// The list that begins at `at`: its elements, little-endian, go to the end of `out`. How many there are, and where the
/// list ends. Lists of one level have to be of one length, and elements of the type, in its range and finite.
pub fn list(
    bytes: &[u8],
    at: usize,
    element: Element,
    out: &mut Vec<u8>,
) -> Option<(usize, usize)> {
    match element {
        Element::Fp64 => read(bytes, at, |at| {
            let (float, end) = float(bytes, at)?;
            out.extend_from_slice(&float.to_le_bytes());
            Some(end)
        }),
        Element::Fp32 => read(bytes, at, |at| {
            let (float, end) = float(bytes, at)?;
            let single = float as f32;
            out.extend_from_slice(&single.to_le_bytes());
            single.is_finite().then_some(end)
        }),
        Element::Int64 => read(bytes, at, |at| {
            let (integer, end) = integer(bytes, at)?;
            out.extend_from_slice(&integer.to_le_bytes());
            Some(end)
        }),
        Element::Int32 => narrow::<i32, 4>(bytes, at, out, i32::to_le_bytes),
        Element::Int16 => narrow::<i16, 2>(bytes, at, out, i16::to_le_bytes),
        Element::Int8 => narrow::<i8, 1>(bytes, at, out, i8::to_le_bytes),
        Element::Uint64 => narrow::<u64, 8>(bytes, at, out, u64::to_le_bytes),
        Element::Uint32 => narrow::<u32, 4>(bytes, at, out, u32::to_le_bytes),
        Element::Uint16 => narrow::<u16, 2>(bytes, at, out, u16::to_le_bytes),
        Element::Uint8 => narrow::<u8, 1>(bytes, at, out, u8::to_le_bytes),
        Element::Bool => read(bytes, at, |at| {
            let rest = bytes.get(at..)?;
            let truth = rest.starts_with(b"true");
            out.push(truth.into());
            if truth {
                return Some(at + 4);
            }
            rest.starts_with(b"false").then_some(at + 5)
        }),
    }
}

fn narrow<T: TryFrom<i64>, const SIZE: usize>(
    bytes: &[u8],
    at: usize,
    out: &mut Vec<u8>,
    raw: fn(T) -> [u8; SIZE],
) -> Option<(usize, usize)> {
    read(bytes, at, |at| {
        let (integer, end) = integer(bytes, at)?;
        out.extend_from_slice(&raw(T::try_from(integer).ok()?));
        Some(end)
    })
}

#[inline(always)]
fn float(bytes: &[u8], at: usize) -> Option<(f64, usize)> {
    match number(bytes, at)? {
        (Number::Float(float), end) => Some((float, end)),
        (Number::Integer(integer), end) => Some((integer as f64, end)),
        (Number::Beyond, _) => None,
    }
}

#[inline(always)]
fn integer(bytes: &[u8], at: usize) -> Option<(i64, usize)> {
    match number(bytes, at)? {
        (Number::Integer(integer), end) => Some((integer, end)),
        _ => None,
    }
}

/// Goes over the list that begins at `at`; `put` takes the element at a place, and gives the place behind it.
#[inline(always)]
fn read(
    bytes: &[u8],
    at: usize,
    mut put: impl FnMut(usize) -> Option<usize>,
) -> Option<(usize, usize)> {
    // By level: how many entries the lists there have, once one has ended, and those of the present one so far.
    let mut lengths = [None; LEVELS];
    let mut entries = [0usize; LEVELS];
    let mut depth = 0;
    let mut innermost = None;
    let mut count = 0;
    let mut at = at;
    loop {
        if byte(bytes, at) == b'[' {
            if depth == LEVELS || innermost == Some(depth) {
                return None;
            }
            entries[depth] = 0;
            depth += 1;
            at = space(bytes, at + 1);
            if byte(bytes, at) == b']' {
                // An empty list is all there is, or it is left to Python.
                return (depth == 1).then_some((0, at + 1));
            }
            continue;
        }
        if depth == 0 || *innermost.get_or_insert(depth) != depth {
            return None;
        }
        // The elements of one list.
        loop {
            at = space(bytes, put(at)?);
            count += 1;
            entries[depth - 1] += 1;
            if byte(bytes, at) != b',' {
                break;
            }
            at = space(bytes, at + 1);
        }
        // The ends of lists.
        loop {
            if byte(bytes, at) != b']' {
                return None;
            }
            depth -= 1;
            let length = entries[depth];
            if *lengths[depth].get_or_insert(length) != length {
                return None;
            }
            at += 1;
            if depth == 0 {
                return Some((count, at));
            }
            entries[depth - 1] += 1;
            at = space(bytes, at);
            if byte(bytes, at) == b',' {
                at = space(bytes, at + 1);
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(text: &str) -> Option<(Vec<f32>, usize)> {
        let mut out = Vec::new();
        let (count, end) = list(text.as_bytes(), 0, Element::Fp32, &mut out)?;
        let values: Vec<f32> = out
            .chunks_exact(4)
            .map(|raw| f32::from_le_bytes(raw.try_into().unwrap()))
            .collect();
        assert_eq!(values.len(), count);
        Some((values, end))
    }

    #[test]
    fn lists_are_read_flat_and_nested() {
        assert_eq!(floats("[1, 2.5,-3e0 ]x"), Some((vec![1.0, 2.5, -3.0], 14)));
        assert_eq!(floats("[[1],[2]]"), Some((vec![1.0, 2.0], 9)));
        assert_eq!(
            floats("[[[1,2],[3,4]] , [[5,6],[7,8]]]").unwrap().0.len(),
            8
        );
        assert_eq!(floats("[ ]"), Some((vec![], 3)));
        let deep = "[".repeat(LEVELS) + "7" + &"]".repeat(LEVELS);
        assert_eq!(floats(&deep).unwrap().0, [7.0]);
    }

    #[test]
    fn what_is_not_regular_is_left_to_python() {
        for text in [
            "",
            "[",
            "[1",
            "[1,",
            "[1,]",
            "[,1]",
            "[1 2]",
            "[[1],[2,3]]",
            "[[1],2]",
            "[1,[2]]",
            "[[[1]],[2]]",
            "[[]]",
            "[[],[]]",
            "[1e39]",
            "[01]",
            "[1.]",
            "[.5]",
            "[+1]",
            "[NaN]",
            "[true]",
            "[\"1\"]",
            "[null]",
            "[{}]",
            "7",
            "[[1,2],[3]]",
            "[[1",
        ] {
            assert_eq!(floats(text), None, "{text}");
        }
        assert_eq!(floats(&("[".repeat(LEVELS + 1) + "7")), None);
    }

    #[test]
    fn integers_stay_within_their_type() {
        let read = |text: &str, element| {
            let mut out = Vec::new();
            list(text.as_bytes(), 0, element, &mut out).map(|_| out)
        };
        assert_eq!(read("[-128,127]", Element::Int8), Some(vec![0x80, 0x7f]));
        assert_eq!(read("[128]", Element::Int8), None);
        assert_eq!(read("[-1]", Element::Uint8), None);
        assert_eq!(read("[65535]", Element::Uint16), Some(vec![0xff, 0xff]));
        assert_eq!(read("[1.0]", Element::Int64), None);
        assert_eq!(read("[1e2]", Element::Int64), None);
        assert_eq!(
            read("[-9223372036854775808]", Element::Int64),
            Some(vec![0, 0, 0, 0, 0, 0, 0, 0x80])
        );
        assert_eq!(read("[9223372036854775808]", Element::Int64), None);
        assert_eq!(read("[true, false]", Element::Bool), Some(vec![1, 0]));
        assert_eq!(read("[1]", Element::Bool), None);
        assert_eq!(read("[truee]", Element::Bool), None);
    }
}
