//! The fixed header of a packet (section 2.1 of the standards), and variable byte integers.

pub const PUBLISH: u8 = 3;
/// The longest variable byte integer.
const MOST_BYTES: usize = 4;

/// A packet that is whole: its first byte, its body, and where it ends.
pub struct Packet<'a> {
    pub first: u8,
    pub body: &'a [u8],
    /// Bytes of its header.
    pub header: usize,
}

impl<'a> Packet<'a> {
    /// The packet that these bytes begin with, if it is whole, of no more than `largest` bytes, and written plainly.
    pub fn first_of(bytes: &'a [u8], largest: usize) -> Option<Packet<'a>> {
        let (first, rest) = bytes.split_first()?;
        let (length, written) = varint(rest)?;
        let header = 1 + written;
        if header + length > largest {
            return None;
        }
        Some(Packet {
            first: *first,
            body: rest.get(written..written + length)?,
            header,
        })
    }

    pub fn size(&self) -> usize {
        self.header + self.body.len()
    }
}

/// A variable byte integer in as few bytes as can be, and how many those are.
pub fn varint(bytes: &[u8]) -> Option<(usize, usize)> {
    let first = *bytes.first()?;
    if first < 0x80 {
        return Some((first.into(), 1));
    }
    let mut value = usize::from(first & 0x7F);
    for (place, byte) in bytes.iter().enumerate().take(MOST_BYTES).skip(1) {
        value |= usize::from(byte & 0x7F) << (7 * place);
        if *byte < 0x80 {
            return (*byte > 0).then_some((value, place + 1));
        }
    }
    None
}

/// The two byte integer that these bytes begin with.
pub fn short(bytes: &[u8]) -> Option<u16> {
    bytes
        .first_chunk()
        .map(|found: &[u8; 2]| u16::from_be_bytes(*found))
}

/// The string or binary data that these bytes begin with, and the bytes behind it.
pub fn string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    bytes.get(2..)?.split_at_checked(short(bytes)?.into())
}

/// Whether these bytes are a string that MQTT allows: UTF-8 without U+0000.
pub fn is_text(bytes: &[u8]) -> bool {
    !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok()
}

/// Whether a message can be published to this topic.
pub fn is_topic(bytes: &[u8]) -> bool {
    !bytes.is_empty() && !bytes.contains(&b'+') && !bytes.contains(&b'#') && is_text(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_read_in_its_shortest_form_only() {
        for (bytes, found) in [
            (&[0x7F][..], Some((127, 1))),
            (&[0x80, 0x01], Some((128, 2))),
            (&[0xFF, 0xFF, 0xFF, 0x7F], Some((268_435_455, 4))),
            (&[0x80, 0x00], None),
            (&[0x80], None),
            (&[0xFF, 0xFF, 0xFF, 0xFF, 0x01], None),
            (&[], None),
        ] {
            assert_eq!(varint(bytes), found);
        }
    }

    #[test]
    fn a_packet_is_whole_and_not_too_large() {
        let bytes = [0x30, 3, 0, 1, b'a'];
        assert_eq!(
            Packet::first_of(&bytes, 5).map(|packet| packet.size()),
            Some(5)
        );
        assert!(Packet::first_of(&bytes, 4).is_none());
        assert!(Packet::first_of(&bytes[..4], 5).is_none());
    }

    #[test]
    fn a_string_lies_inside() {
        assert_eq!(string(&[0, 1, b'a', 7]), Some((&b"a"[..], &[7][..])));
        assert_eq!(string(&[0, 2, b'a']), None);
        assert_eq!(string(&[0]), None);
    }
}
