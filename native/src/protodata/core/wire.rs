//! Varints and lengths, in the form that all readers of protobuf accept.

/// Tag of a length-delimited field 1: an entry of `DataMap.mapItems`, and the key in an entry.
pub const FIRST: u8 = 0x0A;
/// Tag of a length-delimited field 2: an entry of `DataMap.metaData`, and the value in an entry.
pub const SECOND: u8 = 0x12;

/// Where something begins and ends.
pub type Range = (usize, usize);

/// The varint at `at`, and where it ends. `None` if it does not end before `end` or is no number of 64 bits.
#[inline(always)]
pub fn varint(bytes: &[u8], at: usize, end: usize) -> Option<(u64, usize)> {
    let first = *bytes.get(at..end)?.first()?;
    if first < 0x80 {
        return Some((first.into(), at + 1));
    }
    let Some(raw) = bytes[at..].first_chunk::<8>() else {
        return longest_varint(&bytes[at..end], at);
    };
    let word = u64::from_le_bytes(*raw);
    let last = !word & HIGH;
    if last == 0 {
        return longest_varint(&bytes[at..end], at);
    }
    let stop = at + last.trailing_zeros() as usize / 8 + 1;
    // The bytes behind the last one are cleared, and so is the highest bit of each.
    let word = word & (last ^ (last - 1)) & !HIGH;
    (stop <= end).then_some((packed(word), stop))
}

/// The highest bit of each byte: of a varint, whether there is more of it; of a text, whether it is more than ASCII.
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Eight times seven bits, put together.
#[inline]
fn packed(word: u64) -> u64 {
    let pairs = (word & 0x007F_007F_007F_007F) | (word & 0x7F00_7F00_7F00_7F00) >> 1;
    let fours = (pairs & 0x0000_3FFF_0000_3FFF) | (pairs & 0x3FFF_0000_3FFF_0000) >> 2;
    (fours & 0x0FFF_FFFF) | (fours & 0x0FFF_FFFF_0000_0000) >> 4
}

#[cold]
fn longest_varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut number = 0;
    let mut place = 0;
    loop {
        let byte = *bytes.get(place)?;
        number |= u64::from(byte & 0x7F) << (7 * place);
        place += 1;
        if byte < 0x80 {
            // The tenth byte has room for one bit only.
            return (place < 10 || byte <= 1).then_some((number, at + place));
        }
        if place == 10 {
            return None;
        }
    }
}

/// Where the content of a length-delimited field begins and ends, whose length stands at `at`.
///
/// `None` if it does not fit before `end`, or its length takes more than four bytes.
#[inline]
pub fn delimited(bytes: &[u8], at: usize, end: usize) -> Option<(usize, usize)> {
    let (size, start) = varint(bytes, at, end)?;
    if start - at > 4 {
        return None;
    }
    let stop = start + size as usize;
    (stop <= end).then_some((start, stop))
}

/// Whether these bytes are UTF-8.
#[inline]
pub fn is_text(bytes: &[u8]) -> bool {
    is_ascii(bytes) || std::str::from_utf8(bytes).is_ok()
}

/// The standard library's test goes byte by byte through short strings.
#[inline(always)]
fn is_ascii(bytes: &[u8]) -> bool {
    let Some(last) = bytes.last_chunk::<8>() else {
        return bytes.iter().fold(0, |seen, byte| seen | byte) < 0x80;
    };
    let mut seen = u64::from_ne_bytes(*last);
    for raw in bytes.chunks_exact(8) {
        seen |= u64::from_ne_bytes(raw.try_into().unwrap_or_default());
    }
    seen & HIGH == 0
}

/// Bytes that `number` takes as a varint.
#[inline]
pub fn width(number: u64) -> usize {
    // Seven bits a byte: the division by 7 as a multiplication.
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

/// Writes `number` as a varint at the beginning of `out`; the rest of it.
#[inline]
pub fn put_varint(out: &mut [u8], mut number: u64) -> &mut [u8] {
    let mut place = 0;
    while number > 0x7F {
        out[place] = number as u8 | 0x80;
        number >>= 7;
        place += 1;
    }
    out[place] = number as u8;
    &mut out[place + 1..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for shift in 0..64 {
            for number in [1u64 << shift, (1u64 << shift) - 1, !(1u64 << shift)] {
                let mut out = [0u8; 12];
                let rest = put_varint(&mut out, number).len();
                assert_eq!(12 - rest, width(number));
                assert_eq!(varint(&out, 0, 12), Some((number, width(number))));
                assert_eq!(varint(&out, 0, width(number) - 1), None);
            }
        }
    }

    #[test]
    fn numbers_of_more_than_64_bits_are_none() {
        let mut bytes = [0xFFu8; 11];
        bytes[9] = 0x02;
        assert_eq!(varint(&bytes, 0, 11), None);
        bytes[9] = 0x81;
        assert_eq!(varint(&bytes, 0, 11), None);
    }

    #[test]
    fn varints_are_read_alike_wherever_they_end() {
        for shift in 0..64 {
            let mut out = [0u8; 24];
            let left = put_varint(&mut out, (1 << shift) | 1).len();
            let size = out.len() - left;
            for behind in 0..8 {
                assert_eq!(
                    varint(&out[..size + behind], 0, size),
                    Some(((1 << shift) | 1, size))
                );
            }
            out[size..].fill(0xFF);
            assert_eq!(varint(&out, 0, size), Some(((1 << shift) | 1, size)));
            assert_eq!(varint(&out, 0, size - 1), None);
        }
    }

    #[test]
    fn texts_of_every_length_are_looked_at_to_the_last_byte() {
        for length in 0..40 {
            let mut text = vec![b'a'; length];
            assert!(is_text(&text));
            for place in 0..length {
                text[place] = 0xFF;
                assert!(!is_text(&text));
                text[place] = b'a';
            }
        }
        assert!(is_text("ein Häuschen im Grünen".as_bytes()));
    }

    #[test]
    fn a_length_beyond_the_end_is_none() {
        assert_eq!(delimited(&[2, 7, 7], 0, 3), Some((1, 3)));
        assert_eq!(delimited(&[3, 7, 7], 0, 3), None);
        assert_eq!(delimited(&[0x82, 0x80, 0x80, 0x80, 0x00, 7, 7], 0, 7), None);
        assert_eq!(delimited(&[], 0, 0), None);
        assert_eq!(delimited(&[1], 5, 3), None);
    }
}
