//! N byte strings in one buffer, as `pipelines.data.spans.Spans` has them.

use std::fmt;

/// The length of a string that is none.
pub const NULL: i64 = -1;
/// The length of something that is no string at all.
pub const STRANGER: i64 = -2;

/// String i is `bytes[starts[i]..starts[i] + lengths[i]]`, none if the length is below 0.
#[derive(Clone, Copy)]
pub struct Spans<'a> {
    pub bytes: &'a [u8],
    pub starts: &'a [i64],
    pub lengths: &'a [i64],
}

/// Strings one behind the other, for tests.
#[cfg(test)]
pub struct Joined {
    bytes: Vec<u8>,
    starts: Vec<i64>,
    lengths: Vec<i64>,
}

#[cfg(test)]
impl Joined {
    pub fn of(strings: &[&[u8]]) -> Joined {
        let mut starts = Vec::new();
        let mut bytes = Vec::new();
        for string in strings {
            starts.push(bytes.len() as i64);
            bytes.extend_from_slice(string);
        }
        let lengths = strings.iter().map(|string| string.len() as i64).collect();
        Joined {
            bytes,
            starts,
            lengths,
        }
    }

    pub fn spans(&self) -> Spans<'_> {
        Spans {
            bytes: &self.bytes,
            starts: &self.starts,
            lengths: &self.lengths,
        }
    }
}

/// A string that may have to be read.
#[derive(Debug)]
pub enum Span {
    Null,
    Stranger,
    /// Where it begins and ends.
    At(usize, usize),
}

/// The string at this position does not lie in the buffer.
#[derive(Debug, PartialEq, Eq)]
pub struct Outside(pub usize);

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the string at position {} does not lie in the buffer",
            self.0
        )
    }
}

impl<'a> Spans<'a> {
    /// Spans whose every string lies in the buffer.
    pub fn checked(
        bytes: &'a [u8],
        starts: &'a [i64],
        lengths: &'a [i64],
    ) -> Result<Spans<'a>, Outside> {
        if starts.len() != lengths.len() {
            return Err(Outside(starts.len().min(lengths.len())));
        }
        let spans = Spans {
            bytes,
            starts,
            lengths,
        };
        let outside = |row: &usize| lengths[*row] >= 0 && spans.get(*row).is_none();
        (0..spans.len())
            .find(outside)
            .map_or(Ok(spans), |row| Err(Outside(row)))
    }

    pub fn len(&self) -> usize {
        self.starts.len().min(self.lengths.len())
    }

    /// The string of this row; `None` for none, and for one that does not lie in the buffer.
    #[inline(always)]
    pub fn get(&self, row: usize) -> Option<&'a [u8]> {
        // A negative number becomes larger than any buffer.
        let (start, length) = (self.starts[row] as u64, self.lengths[row] as u64);
        let stop = start.checked_add(length)?;
        self.bytes
            .get(usize::try_from(start).ok()?..usize::try_from(stop).ok()?)
    }

    /// How long the string of this row is; 0 for none.
    pub fn size(&self, row: usize) -> usize {
        usize::try_from(self.lengths[row]).unwrap_or(0)
    }

    /// Bytes of all strings together.
    pub fn total(&self) -> usize {
        let total = |sum: i64, length: &i64| sum.saturating_add((*length).max(0));
        usize::try_from(self.lengths.iter().fold(0, total)).unwrap_or(usize::MAX)
    }

    /// Where the string of this row is.
    #[inline]
    pub fn span(&self, row: usize) -> Result<Span, Outside> {
        let (start, length) = (self.starts[row], self.lengths[row]);
        if length < 0 {
            return Ok(if length == NULL {
                Span::Null
            } else {
                Span::Stranger
            });
        }
        let stop = start.checked_add(length).unwrap_or(-1);
        match (usize::try_from(start), usize::try_from(stop)) {
            (Ok(start), Ok(stop)) if stop <= self.bytes.len() => Ok(Span::At(start, stop)),
            _ => Err(Outside(row)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_string_lies_in_the_buffer_or_spans_are_refused() {
        fn checked(starts: &[i64], lengths: &[i64]) -> Option<Outside> {
            Spans::checked(b"ab", starts, lengths).err()
        }
        assert_eq!(checked(&[0, 1], &[2, 2]), Some(Outside(1)));
        assert_eq!(checked(&[0], &[2, 2]), Some(Outside(1)));
        assert_eq!(checked(&[2, 9, 9], &[0, NULL, STRANGER]), None);
        for (start, length) in [(0, 3), (3, 0), (-1, 1), (i64::MAX, 1), (1, i64::MAX)] {
            assert_eq!(checked(&[start], &[length]), Some(Outside(0)));
            let spans = Spans {
                bytes: b"ab",
                starts: &[start],
                lengths: &[length],
            };
            assert_eq!(spans.get(0), None);
            assert_eq!(spans.span(0).err(), Some(Outside(0)));
        }
    }
}
