//! Whether bytes are a message of protos/data.proto in which protobuf finds nothing unknown.

use super::wire::{delimited, is_text, varint};

/// Levels of messages that are looked into; protobuf's own bound is 100.
const DEEPEST: usize = 32;

/// The messages of protos/data.proto. `Entry` is the message of a map's entry, as protobuf defines it.
#[derive(Clone, Copy)]
pub enum Message {
    Map,
    Entry,
    Scheme,
    List,
    Strings,
    Integers,
    Doubles,
    Blobs,
    Images,
    Arrays,
    Boxes,
    Points,
    Maps,
    Schemes,
    Image,
    Array,
    Box,
    Point,
}

enum Field {
    Varint,
    Fixed,
    /// Repeated numbers, packed or one by one.
    Varints,
    Fixeds,
    Bytes,
    Text,
    Inner(Message),
}

/// Whether protobuf accepts these bytes as this message and knows all its fields. False is "perhaps not".
pub fn well_formed(bytes: &[u8], message: Message) -> bool {
    checked(bytes, message, 0).is_some()
}

fn checked(bytes: &[u8], message: Message, depth: usize) -> Option<()> {
    let end = bytes.len();
    let mut at = 0;
    while at < end {
        // All fields have numbers below 16, so that their tags take one byte.
        let tag = bytes[at];
        let (field, wire_type) = (field(message, tag >> 3)?, tag & 7);
        at += 1;
        at = match (field, wire_type) {
            (Field::Varint | Field::Varints, 0) => varint(bytes, at, end)?.1,
            (Field::Fixed | Field::Fixeds, 1) => (end - at >= 8).then_some(at + 8)?,
            (Field::Varints, 2) => {
                let (mut place, stop) = delimited(bytes, at, end)?;
                while place < stop {
                    place = varint(bytes, place, stop)?.1;
                }
                stop
            }
            (Field::Fixeds, 2) => {
                let (start, stop) = delimited(bytes, at, end)?;
                ((stop - start) % 8 == 0).then_some(stop)?
            }
            (Field::Bytes, 2) => delimited(bytes, at, end)?.1,
            (Field::Text, 2) => {
                let (start, stop) = delimited(bytes, at, end)?;
                is_text(&bytes[start..stop]).then_some(stop)?
            }
            (Field::Inner(inner), 2) if depth < DEEPEST => {
                let (start, stop) = delimited(bytes, at, end)?;
                checked(&bytes[start..stop], inner, depth + 1)?;
                stop
            }
            _ => return None,
        };
    }
    Some(())
}

fn field(message: Message, number: u8) -> Option<Field> {
    use Field::{Bytes, Fixed, Fixeds, Inner, Text, Varint, Varints};
    let found = match (message, number) {
        (Message::Map, 1 | 2) => Inner(Message::Entry),
        (Message::Entry, 1) => Text,
        (Message::Entry, 2) => Inner(Message::Scheme),
        (Message::Scheme, 2) => Text,
        (Message::Scheme, 3) => Bytes,
        (Message::Scheme, 4 | 5 | 12 | 13) => Varint,
        (Message::Scheme, 6) => Fixed,
        (Message::Scheme, 7) => Inner(Message::List),
        (Message::Scheme, 8) => Inner(Message::Array),
        (Message::Scheme, 9) => Inner(Message::Image),
        (Message::Scheme, 10) => Inner(Message::Box),
        (Message::Scheme, 11) => Inner(Message::Map),
        (Message::Scheme, 14) => Inner(Message::Point),
        (Message::List, 1) => Inner(Message::Strings),
        (Message::List, 2 | 3) => Inner(Message::Integers),
        (Message::List, 4) => Inner(Message::Doubles),
        (Message::List, 5) => Inner(Message::Images),
        (Message::List, 6) => Inner(Message::Arrays),
        (Message::List, 7) => Inner(Message::Boxes),
        (Message::List, 8) => Inner(Message::Points),
        (Message::List, 9) => Inner(Message::Blobs),
        (Message::List, 10) => Inner(Message::Maps),
        (Message::List, 11) => Inner(Message::Schemes),
        (Message::Strings, 1) => Text,
        (Message::Integers, 1) => Varints,
        (Message::Doubles, 1) => Fixeds,
        (Message::Blobs, 1) => Bytes,
        (Message::Images, 1) => Inner(Message::Image),
        (Message::Arrays, 1) => Inner(Message::Array),
        (Message::Boxes, 1) => Inner(Message::Box),
        (Message::Points, 1) => Inner(Message::Point),
        (Message::Maps, 1) => Inner(Message::Map),
        (Message::Schemes, 1) => Inner(Message::Scheme),
        (Message::Image, 1) => Text,
        (Message::Image, 2) => Bytes,
        (Message::Array, 1) => Varints,
        (Message::Array, 2) => Varint,
        (Message::Array, 3) => Bytes,
        (Message::Box, 1..=8 | 10) => Fixed,
        (Message::Box, 9) => Text,
        (Message::Box, 11) => Varint,
        (Message::Point, 1) => Text,
        (Message::Point, 2) => Fixed,
        (Message::Point, 3) => Fixeds,
        _ => return None,
    };
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_values_are_well_formed() {
        assert!(well_formed(b"", Message::Scheme));
        assert!(well_formed(b"\x12\x02ab\x68\x01", Message::Scheme));
        assert!(well_formed(
            b"\x42\x09\x0a\x01\x01\x10\x01\x1a\x02ab",
            Message::Scheme
        ));
        assert!(well_formed(b"\x31abcdefgh\x68\x04", Message::Scheme));
    }

    #[test]
    fn whatever_is_cut_off_or_unknown_is_not() {
        let whole = b"\x42\x09\x0a\x01\x01\x10\x01\x1a\x02ab";
        for stop in 1..whole.len() {
            assert!(!well_formed(&whole[..stop], Message::Scheme));
        }
        assert!(!well_formed(b"\x12\x02\xff\xfe", Message::Scheme));
        assert!(!well_formed(b"\x10\x01", Message::Scheme));
        assert!(!well_formed(b"\x7a\x01a", Message::Scheme));
        assert!(!well_formed(b"\x4b\x4c", Message::Scheme));
    }

    #[test]
    fn depth_is_bounded() {
        // Each level is a map, an entry and a value.
        for (levels, expected) in [(1, true), (10, true), (11, false), (200, false)] {
            let mut nested = Vec::new();
            for _ in 0..levels {
                nested = field(0x0A, &field(0x12, &field(0x5A, &nested)));
            }
            assert_eq!(
                well_formed(&nested, Message::Map),
                expected,
                "{levels} levels"
            );
        }
    }

    fn field(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut found = vec![tag];
        let mut size = content.len();
        while size > 0x7F {
            found.push(size as u8 | 0x80);
            size >>= 7;
        }
        found.push(size as u8);
        found.extend(content);
        found
    }
}
