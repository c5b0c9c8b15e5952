//! Columns to messages: all messages in one block of bytes.
//!
//! The block begins with the messages' starts and lengths, 64-bit numbers, one of each a row; the bytes follow.

use super::wire::{FIRST, SECOND, put_varint, width};
use crate::columnar::core::spans::{NULL, Spans};
use crate::columnar::core::strings::{place, put};

/// Bytes of the largest message; protobuf's own bound.
const LARGEST: usize = i32::MAX as usize;

/// A column on its way out. Where `present` is 0, a row has no such key.
pub enum Source<'a> {
    /// Values of `size` bytes each, between a head and a tail that are the same in all rows.
    Fixed {
        head: Vec<u8>,
        tail: Vec<u8>,
        size: usize,
        values: &'a [u8],
        present: Option<&'a [u8]>,
    },
    /// Numbers of 64 bits, written as INT64; `key` as `key_field` makes it.
    Integers {
        key: Vec<u8>,
        values: &'a [u8],
        present: Option<&'a [u8]>,
    },
    /// Strings or bytes; one of a length below 0 is none.
    Strings {
        key: Vec<u8>,
        bytes: bool,
        spans: Spans<'a>,
    },
    /// Strings or bytes that stand on their own.
    Loose {
        key: Vec<u8>,
        bytes: bool,
        values: Vec<Option<&'a [u8]>>,
    },
    /// Entries that are ready.
    Wire {
        spans: Spans<'a>,
    },
    Entries {
        values: Vec<Option<&'a [u8]>>,
    },
}

/// A key as it stands in its entries.
pub fn key_field(key: &[u8]) -> Vec<u8> {
    let mut field = vec![0; 1 + width(key.len() as u64) + key.len()];
    field[0] = FIRST;
    let rest = put_varint(&mut field[1..], key.len() as u64);
    put(rest, key);
    field
}

/// The lengths of all messages, or the position of one that is too long; -1 where `failed` has one.
pub fn lengths(rows: usize, sources: &[Source<'_>], failed: &[usize]) -> Result<Vec<i64>, usize> {
    let mut lengths = vec![0usize; rows];
    for source in sources {
        source.add_sizes(&mut lengths);
    }
    if let Some(row) = lengths.iter().position(|length| *length > LARGEST) {
        return Err(row);
    }
    let mut lengths: Vec<i64> = lengths.into_iter().map(|length| length as i64).collect();
    for row in failed {
        if let Some(length) = lengths.get_mut(*row) {
            *length = NULL;
        }
    }
    Ok(lengths)
}

/// Fills a block for messages of these lengths (`columnar::core::strings`).
pub fn fill(block: &mut [u8], sources: &[Source<'_>], lengths: &[i64]) {
    let mut out = place(block, lengths);
    for (row, length) in lengths.iter().enumerate() {
        if *length >= 0 {
            for source in sources {
                out = source.put(row, out);
            }
        }
    }
}

impl<'a> Source<'a> {
    /// Rows that the column has; `None` if its parts do not agree.
    pub fn rows(&self) -> Option<usize> {
        let (rows, present) = match self {
            // Values without bytes: their number is unknown.
            Source::Fixed { size: 0, .. } => return None,
            Source::Fixed {
                size,
                values,
                present,
                ..
            } => (
                (values.len() % size == 0).then_some(values.len() / size)?,
                present,
            ),
            Source::Integers {
                values, present, ..
            } => (
                (values.len() % 8 == 0).then_some(values.len() / 8)?,
                present,
            ),
            Source::Strings { spans, .. } | Source::Wire { spans } => {
                return Some(spans.starts.len());
            }
            Source::Loose { values, .. } | Source::Entries { values } => return Some(values.len()),
        };
        present
            .is_none_or(|present| present.len() == rows)
            .then_some(rows)
    }

    fn string(&self, row: usize) -> Option<&'a [u8]> {
        match self {
            Source::Strings { spans, .. } | Source::Wire { spans } => spans.get(row),
            Source::Loose { values, .. } | Source::Entries { values } => values[row],
            _ => None,
        }
    }

    fn add_sizes(&self, lengths: &mut [usize]) {
        match self {
            Source::Fixed {
                head,
                tail,
                size,
                present: None,
                ..
            } => {
                let size = head.len() + size + tail.len();
                lengths.iter_mut().for_each(|length| *length += size);
            }
            Source::Wire { spans } => {
                for (length, size) in lengths.iter_mut().zip(spans.lengths) {
                    *length += (*size).max(0) as usize;
                }
            }
            _ => {
                for (row, length) in lengths.iter_mut().enumerate() {
                    *length += self.size(row);
                }
            }
        }
    }

    #[inline]
    fn size(&self, row: usize) -> usize {
        match self {
            Source::Fixed {
                present: Some(present),
                ..
            }
            | Source::Integers {
                present: Some(present),
                ..
            } if present[row] == 0 => 0,
            Source::Fixed {
                head, tail, size, ..
            } => head.len() + size + tail.len(),
            Source::Integers { key, values, .. } => {
                let body = key.len() + 5 + width(number(values, row));
                1 + width(body as u64) + body
            }
            Source::Strings { key, .. } | Source::Loose { key, .. } => {
                self.string(row).map_or(0, |string| {
                    let body = body_size(key, string.len()).1;
                    1 + width(body as u64) + body
                })
            }
            Source::Wire { .. } | Source::Entries { .. } => self.string(row).map_or(0, <[u8]>::len),
        }
    }

    #[inline]
    fn put<'b>(&self, row: usize, out: &'b mut [u8]) -> &'b mut [u8] {
        match self {
            Source::Fixed {
                present: Some(present),
                ..
            }
            | Source::Integers {
                present: Some(present),
                ..
            } if present[row] == 0 => out,
            Source::Fixed {
                head,
                tail,
                size,
                values,
                ..
            } => {
                let out = put(out, head);
                let out = put(out, &values[row * size..(row + 1) * size]);
                put(out, tail)
            }
            Source::Integers { key, values, .. } => {
                let value = number(values, row);
                let scheme = 3 + width(value);
                let out = put_head(out, FIRST, key.len() + 2 + scheme);
                let out = put(out, key);
                let out = put(out, &[SECOND, scheme as u8, 0x20]);
                put(put_varint(out, value), b"\x68\x05")
            }
            Source::Strings { key, bytes, .. } | Source::Loose { key, bytes, .. } => {
                let Some(string) = self.string(row) else {
                    return out;
                };
                let (scheme, body) = body_size(key, string.len());
                let out = put_head(out, FIRST, body);
                let out = put(out, key);
                let out = put_head(out, SECOND, scheme);
                let out = put_head(out, if *bytes { 0x1A } else { 0x12 }, string.len());
                let out = put(out, string);
                put(out, if *bytes { b"\x68\x02" } else { b"\x68\x01" })
            }
            Source::Wire { spans } => put(out, spans.get(row).unwrap_or_default()),
            Source::Entries { values } => put(out, values[row].unwrap_or_default()),
        }
    }
}

/// Bytes of the value, and of the whole entry less its own tag and length.
fn body_size(key: &[u8], string: usize) -> (usize, usize) {
    let scheme = 3 + width(string as u64) + string;
    (scheme, key.len() + 1 + width(scheme as u64) + scheme)
}

fn put_head(out: &mut [u8], tag: u8, size: usize) -> &mut [u8] {
    out[0] = tag;
    put_varint(&mut out[1..], size as u64)
}

fn number(values: &[u8], row: usize) -> u64 {
    values[row * 8..]
        .first_chunk::<8>()
        .map_or(0, |raw| u64::from_ne_bytes(*raw))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columnar::core::strings::block_size;

    fn messages(rows: usize, sources: &[Source<'_>], failed: &[usize]) -> Vec<Option<Vec<u8>>> {
        assert!(sources.iter().all(|source| source.rows() == Some(rows)));
        let lengths = lengths(rows, sources, failed).expect("short");
        let mut block = vec![0; block_size(&lengths)];
        fill(&mut block, sources, &lengths);
        let mut rest = &block[rows * 16..];
        let mut found = Vec::new();
        for length in lengths {
            found.push(usize::try_from(length).ok().map(|length| {
                let (message, left) = rest.split_at(length);
                rest = left;
                message.to_vec()
            }));
        }
        assert!(rest.is_empty());
        found
    }

    #[test]
    fn entries_are_what_protobuf_writes() {
        let numbers: Vec<u8> = [1i64, -1]
            .iter()
            .flat_map(|number| number.to_ne_bytes())
            .collect();
        let integers = Source::Integers {
            key: key_field(b"n"),
            values: &numbers,
            present: None,
        };
        let texts = Source::Loose {
            key: key_field(b"s"),
            bytes: false,
            values: vec![Some(b"ab"), None],
        };
        let one =
            b"\x0a\x09\x0a\x01n\x12\x04\x20\x01\x68\x05\x0a\x0b\x0a\x01s\x12\x06\x12\x02ab\x68\x01";
        let two = b"\x0a\x12\x0a\x01n\x12\x0d\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x68\x05";
        assert_eq!(
            messages(2, &[integers, texts], &[]),
            [Some(one.to_vec()), Some(two.to_vec())]
        );
    }

    #[test]
    fn rows_that_failed_have_no_message_and_gaps_no_entry() {
        let fixed = || Source::Fixed {
            head: b"<".to_vec(),
            tail: b">".to_vec(),
            size: 2,
            values: b"aabbcc",
            present: Some(&[1, 0, 1]),
        };
        assert_eq!(
            messages(3, &[fixed()], &[2]),
            [Some(b"<aa>".to_vec()), Some(vec![]), None]
        );
        assert_eq!(
            messages(3, &[fixed(), fixed()], &[7])[2],
            Some(b"<cc><cc>".to_vec())
        );
    }

    #[test]
    fn parts_of_a_column_that_do_not_agree_are_found() {
        let column = |values, present| Source::Integers {
            key: Vec::new(),
            values,
            present,
        };
        assert_eq!(column(&[0; 16], Some(&[1])).rows(), None);
        assert_eq!(column(&[0; 15], None).rows(), None);
        assert_eq!(column(&[0; 16], Some(&[1, 1])).rows(), Some(2));
    }
}
