//! Entries that are made as the last one of their key was, known at a glance.
//!
//! A producer writes its messages in one way: tags, key, type and shape of an entry are, byte for byte, those of the
//! entry before. Where they are, only its content is new, and nothing else has to be parsed. An entry that does not
//! fit into the mould is parsed as usual.

use super::value::{Cell, Kind};
use super::wire::{is_text, varint};

/// Bytes before the content at most; entries with more are always taken apart.
const HEAD: usize = 32;
/// Bytes of the type behind the content, which is where producers write it.
const TYPE: usize = 2;

/// The bytes that entries of one make have in common.
#[derive(Clone, Copy)]
pub struct Mould {
    /// The bytes before the content, and which of them count.
    head: [u8; HEAD],
    mask: [u8; HEAD],
    /// Where the content begins.
    content: usize,
    /// The bytes behind the content, if there are any.
    tail: Option<[u8; TYPE]>,
    length: Length,
    /// The cell of such an entry, but for `bits`, and for `size` where lengths differ.
    cell: Cell,
}

/// Bytes of an entry, its tag included.
#[derive(Clone, Copy)]
enum Length {
    Fixed(usize),
    /// It stands in the entry, and so does the value's, which begins here.
    Short {
        value: usize,
    },
}

impl Mould {
    /// The make of this entry: `bytes[at..stop]`, with a value from `value` on that was read as `cell`.
    ///
    /// `None` if it is not made in one of the ways that are known here.
    pub fn of(bytes: &[u8], at: usize, value: usize, stop: usize, cell: Cell) -> Option<Mould> {
        let number = matches!(cell.kind, Kind::Integer | Kind::Double | Kind::Boolean);
        let (from, to) = match cell.kind {
            Kind::Other => return None,
            _ if number => (value + 1, stop.checked_sub(TYPE)?),
            _ => (cell.bits as usize, cell.bits as usize + cell.size),
        };
        let tail = match stop - to {
            0 => None,
            TYPE => Some([bytes[to], bytes[to + 1]]),
            _ => return None,
        };
        let fits = match cell.kind {
            Kind::Integer => bytes[value] == 0x20 && tail == Some([0x68, 5]),
            Kind::Boolean => bytes[value] == 0x28 && tail == Some([0x68, 6]) && to == from + 1,
            Kind::Double => bytes[value] == 0x31 && tail == Some([0x68, 4]) && to == from + 8,
            _ => true,
        };
        let content = from - at;
        if !fits || content > HEAD {
            return None;
        }
        let mut head = [0; HEAD];
        let mut mask = [0; HEAD];
        head[..content].copy_from_slice(&bytes[at..from]);
        mask[..content].fill(0xFF);
        let (value, size) = (value - at, stop - at);
        // Numbers and short strings are of many lengths, each of which then takes one byte.
        let string = matches!(cell.kind, Kind::Text | Kind::Bytes);
        let plain = content == value + if string { 2 } else { 1 };
        let length = if (string || cell.kind == Kind::Integer)
            && plain
            && tail.is_some()
            && size - 2 < 0x80
            && usize::from(head[1]) == size - 2
            && usize::from(head[value - 1]) == size - value
        {
            mask[1] = 0;
            mask[value - 1] = 0;
            if string {
                mask[value + 1] = 0;
            }
            Length::Short { value }
        } else {
            Length::Fixed(size)
        };
        Some(Mould {
            head,
            mask,
            content,
            tail,
            length,
            cell,
        })
    }

    /// The cell of the entry at `at`, and where it ends, if it is of this make and ends before `end`.
    #[inline(always)]
    pub fn take(&self, bytes: &[u8], at: usize, end: usize) -> Option<(Cell, usize)> {
        let head = bytes.get(at..)?.first_chunk::<HEAD>()?;
        let mut other = 0;
        for (place, byte) in head.iter().enumerate() {
            other |= (byte ^ self.head[place]) & self.mask[place];
        }
        if other != 0 {
            return None;
        }
        let size = match self.length {
            Length::Fixed(size) => size,
            Length::Short { value } => {
                let size = usize::from(head[1]) + 2;
                if head[1] > 0x7F || usize::from(head[value - 1]) + value != size {
                    return None;
                }
                size
            }
        };
        let (from, stop) = (at + self.content, at + size);
        if stop > end {
            return None;
        }
        let to = match self.tail {
            None => stop,
            Some(tail) => {
                let to = stop - TYPE;
                if bytes[to..stop] != tail {
                    return None;
                }
                to
            }
        };
        let content = bytes.get(from..to)?;
        let mut cell = self.cell;
        cell.bits = from as u64;
        match cell.kind {
            Kind::Text | Kind::Bytes => {
                if matches!(self.length, Length::Short { .. })
                    && usize::from(head[self.content - 1]) != content.len()
                {
                    return None;
                }
                if cell.kind == Kind::Text && !is_text(content) {
                    return None;
                }
                cell.size = content.len();
            }
            Kind::Array => {}
            Kind::Integer => {
                let (number, after) = varint(bytes, from, to)?;
                if after != to {
                    return None;
                }
                cell.bits = number;
            }
            Kind::Double => cell.bits = u64::from_le_bytes(*content.first_chunk::<8>()?),
            Kind::Boolean => {
                cell.bits = content[0].into();
                if content[0] > 1 {
                    return None;
                }
            }
            Kind::Other => return None,
        }
        Some((cell, stop))
    }
}

#[cfg(test)]
mod tests {
    use super::super::value;
    use super::*;

    const TEXT: &[u8] = b"\x0a\x0b\x0a\x01s\x12\x06\x12\x02ab\x68\x01";
    const NUMBER: &[u8] = b"\x0a\x09\x0a\x01n\x12\x04\x20\x07\x68\x05";
    const ARRAY: &[u8] = b"\x0a\x13\x0a\x01x\x12\x0e\x42\x0c\x0a\x02\x01\x02\x10\x06\x1a\x04abcd";
    const DOUBLE: &[u8] = b"\x0a\x10\x0a\x01d\x12\x0b\x31abcdefgh\x68\x04";
    const BOOLEAN: &[u8] = b"\x0a\x09\x0a\x01b\x12\x04\x28\x01\x68\x06";

    fn mould(entry: &[u8]) -> Mould {
        // Keys here are of one letter: a value begins with its eighth byte.
        let cell = value::read(entry, 7, entry.len(), &mut Vec::new()).expect("plain");
        Mould::of(entry, 0, 7, entry.len(), cell).expect("of a common make")
    }

    /// The result of the mould of `model` for `entry`, with bytes behind it.
    fn taken(model: &[u8], entry: &[u8]) -> Option<(u64, usize, usize)> {
        let bytes = [entry, &[0; HEAD]].concat();
        let (cell, stop) = mould(model).take(&bytes, 0, entry.len())?;
        Some((cell.bits, cell.size, stop))
    }

    #[test]
    fn contents_differ_and_of_numbers_and_short_strings_their_lengths() {
        let longer = b"\x0a\x0d\x0a\x01s\x12\x08\x12\x04abcd\x68\x01";
        assert_eq!(taken(TEXT, TEXT), Some((9, 2, 13)));
        assert_eq!(taken(TEXT, longer), Some((9, 4, 15)));
        let more = b"\x0a\x0a\x0a\x01n\x12\x05\x20\x85\x01\x68\x05";
        assert_eq!(taken(NUMBER, more), Some((133, 0, 12)));
        let other = [&ARRAY[..17], b"wxyz"].concat();
        assert_eq!(taken(ARRAY, &other), Some((17, 4, 21)));
        let double = u64::from_le_bytes(*b"abcdefgh");
        assert_eq!(taken(DOUBLE, DOUBLE), Some((double, 0, 18)));
        assert_eq!(taken(BOOLEAN, BOOLEAN), Some((1, 0, 11)));
    }

    #[test]
    fn whatever_else_differs_is_not_taken() {
        for model in [TEXT, NUMBER, ARRAY, DOUBLE, BOOLEAN] {
            for place in 0..model.len() {
                for flip in 1..=255 {
                    let mut entry = model.to_vec();
                    entry[place] ^= flip;
                    let Some((_, _, stop)) = taken(model, &entry) else {
                        continue;
                    };
                    // Then it equals the result of a reader without a mould.
                    assert_eq!(stop, entry.len());
                    assert!(value::read(&entry, 7, stop, &mut Vec::new()).is_some());
                    assert!((7..model.len()).contains(&place), "{place} of {model:?}");
                }
            }
            for end in 0..model.len() {
                assert!(
                    mould(model)
                        .take(&[model, &[0; HEAD]].concat(), 0, end)
                        .is_none()
                );
            }
        }
        assert_eq!(
            taken(TEXT, b"\x0a\x0b\x0a\x01s\x12\x06\x12\x02\xff\xfe\x68\x01"),
            None
        );
        assert_eq!(
            taken(BOOLEAN, b"\x0a\x09\x0a\x01b\x12\x04\x28\x02\x68\x06"),
            None
        );
        // A number, and something behind it.
        let more = b"\x0a\x0a\x0a\x01n\x12\x05\x20\x07\x07\x68\x05";
        assert_eq!(taken(NUMBER, more), None);
    }

    #[test]
    fn lengths_of_more_than_a_byte_are_taken_as_they_are() {
        let long = [
            &b"\x0a\x8f\x01\x0a\x01s\x12\x89\x01\x12\x84\x01"[..],
            &[b'a'; 132],
            b"\x68\x01",
        ]
        .concat();
        let cell = value::read(&long, 9, long.len(), &mut Vec::new()).expect("plain");
        let mould = Mould::of(&long, 0, 9, long.len(), cell).expect("of a common make");
        assert!(mould.take(&long, 0, long.len()).is_some());
        assert!(
            mould
                .take(&[TEXT, &[0; HEAD]].concat(), 0, TEXT.len())
                .is_none()
        );
    }
}
