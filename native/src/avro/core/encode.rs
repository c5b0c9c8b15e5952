//! Columns to flat Avro records.

use super::program::DAY;
use crate::columnar::core::spans::Spans;

/// The encoding of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    Boolean,
    Int,
    Long,
    /// Milliseconds as days.
    Days,
    /// Milliseconds as so many parts of one each.
    Parts(i64),
    /// Of the bits of a float of 64 bits.
    Float,
    Double,
}

/// The values of a field on their way out. Numbers have eight bytes each.
pub enum Source<'a> {
    /// One a row.
    Numbers(&'a [u8]),
    /// So many a row.
    Lists(usize, &'a [u8]),
    /// Those of row i between the i-th of these and the next.
    Ragged(&'a [i64], &'a [u8]),
    /// Bytes behind their length.
    Strings(Spans<'a>),
    /// Values that are encoded already.
    Written(Spans<'a>),
    /// No row has a value.
    Nothing,
}

pub struct Output<'a> {
    pub source: Source<'a>,
    pub word: Word,
    /// The bytes before each value: its index in a union.
    pub before: Vec<u8>,
    /// The bytes for a row without a value; `None`: such a row cannot be written.
    pub absent: Option<Vec<u8>>,
    /// One byte a row: whether it has a number, or numbers. `None`: all have.
    pub present: Option<&'a [u8]>,
}

/// The records of all rows behind `prefix` each, one behind the other, and how long each is. `None` if one cannot be
/// written, or a column has not so many rows.
pub fn records(rows: usize, prefix: &[u8], outputs: &[Output<'_>]) -> Option<(Vec<u8>, Vec<i64>)> {
    let mut out = Vec::with_capacity(rows * 64);
    let mut lengths = Vec::with_capacity(rows);
    for row in 0..rows {
        let start = out.len();
        out.extend_from_slice(prefix);
        for output in outputs {
            put(&mut out, output, row)?;
        }
        lengths.push((out.len() - start) as i64);
    }
    Some((out, lengths))
}

#[inline]
fn put(out: &mut Vec<u8>, output: &Output<'_>, row: usize) -> Option<()> {
    if let Some(present) = output.present
        && *present.get(row)? == 0
    {
        out.extend_from_slice(output.absent.as_ref()?);
        return Some(());
    }
    match &output.source {
        Source::Numbers(values) => {
            out.extend_from_slice(&output.before);
            let place = values.get(row * 8..row * 8 + 8)?;
            put_number(out, output.word, place)
        }
        Source::Lists(width, values) => {
            out.extend_from_slice(&output.before);
            let size = width.checked_mul(8)?;
            let start = size.checked_mul(row)?;
            put_list(
                out,
                output.word,
                values.get(start..start.checked_add(size)?)?,
            )
        }
        Source::Ragged(splits, values) => {
            out.extend_from_slice(&output.before);
            let place = |split: usize| usize::try_from(*splits.get(split)?).ok()?.checked_mul(8);
            put_list(out, output.word, values.get(place(row)?..place(row + 1)?)?)
        }
        Source::Strings(spans) => match text(spans, row)? {
            Some(raw) => {
                out.extend_from_slice(&output.before);
                put_long(out, raw.len() as i64);
                out.extend_from_slice(raw);
                Some(())
            }
            None => absent(out, output),
        },
        Source::Written(spans) => match text(spans, row)? {
            Some(raw) => {
                out.extend_from_slice(&output.before);
                out.extend_from_slice(raw);
                Some(())
            }
            None => absent(out, output),
        },
        Source::Nothing => absent(out, output),
    }
}

fn absent(out: &mut Vec<u8>, output: &Output<'_>) -> Option<()> {
    out.extend_from_slice(output.absent.as_ref()?);
    Some(())
}

/// The string of this row, if it has one; `None` if there is no such row.
#[inline(always)]
fn text<'a>(spans: &Spans<'a>, row: usize) -> Option<Option<&'a [u8]>> {
    (row < spans.len()).then(|| spans.get(row))
}

fn put_list(out: &mut Vec<u8>, word: Word, values: &[u8]) -> Option<()> {
    let count = values.len() / 8;
    if count > 0 {
        put_long(out, count as i64);
        for value in values.chunks_exact(8) {
            put_number(out, word, value)?;
        }
    }
    out.push(0);
    Some(())
}

#[inline(always)]
fn put_number(out: &mut Vec<u8>, word: Word, raw: &[u8]) -> Option<()> {
    let bytes = *raw.first_chunk()?;
    let (integer, float) = (i64::from_ne_bytes(bytes), f64::from_ne_bytes(bytes));
    match word {
        Word::Boolean => out.push(u8::from(integer != 0)),
        Word::Int => put_long(out, i32::try_from(integer).ok()?.into()),
        Word::Long => put_long(out, integer),
        Word::Days => put_long(out, i32::try_from(integer.div_euclid(DAY)).ok()?.into()),
        Word::Parts(parts) => put_long(out, integer.checked_mul(parts)?),
        Word::Float => {
            let short = float as f32;
            if float.is_finite() && !short.is_finite() {
                return None;
            }
            out.extend_from_slice(&short.to_le_bytes());
        }
        Word::Double => out.extend_from_slice(&float.to_le_bytes()),
    }
    Some(())
}

/// Seven bits a byte, the lowest first; numbers below 0 stand between the others.
#[inline(always)]
pub fn put_long(out: &mut Vec<u8>, value: i64) {
    let mut folded = (value << 1 ^ value >> 63) as u64;
    while folded >= 0x80 {
        out.push(folded as u8 | 0x80);
        folded >>= 7;
    }
    out.push(folded as u8);
}

#[cfg(test)]
mod tests {
    use super::super::scan::long;
    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_written() {
        for value in [0, -1, 63, 64, -64, -65, 1 << 40, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            put_long(&mut out, value);
            assert_eq!(long(&out, 0), Some((value, out.len())));
        }
    }

    fn words(values: &[i64]) -> Vec<u8> {
        values
            .iter()
            .flat_map(|value| value.to_ne_bytes())
            .collect()
    }

    fn written(source: Source<'_>, word: Word, present: Option<&[u8]>) -> Option<Vec<u8>> {
        let output = Output {
            source,
            word,
            before: vec![2],
            absent: Some(vec![0]),
            present,
        };
        records(2, b"#", &[output]).map(|(bytes, _)| bytes)
    }

    #[test]
    fn rows_without_a_value_have_what_stands_for_it() {
        let values = words(&[3, 4]);
        let numbers = || Source::Numbers(&values);
        assert_eq!(
            written(numbers(), Word::Long, None).unwrap(),
            b"#\x02\x06#\x02\x08"
        );
        assert_eq!(
            written(numbers(), Word::Long, Some(&[0, 1])).unwrap(),
            b"#\x00#\x02\x08"
        );
        assert_eq!(
            written(Source::Nothing, Word::Long, None).unwrap(),
            b"#\x00#\x00"
        );
        let spans = Spans {
            bytes: b"ab",
            starts: &[0, 0],
            lengths: &[2, -1],
        };
        assert_eq!(
            written(Source::Strings(spans), Word::Long, None).unwrap(),
            b"#\x02\x04ab#\x00"
        );
        let splits = [0, 0, 2];
        let ragged = Source::Ragged(&splits, &values);
        assert_eq!(
            written(ragged, Word::Int, None).unwrap(),
            b"#\x02\x00#\x02\x04\x06\x08\x00"
        );
    }

    #[test]
    fn what_has_no_room_or_is_not_there_is_not_written() {
        let large = words(&[1, 1 << 40]);
        assert!(written(Source::Numbers(&large), Word::Int, None).is_none());
        assert!(written(Source::Numbers(&large), Word::Parts(1 << 30), None).is_none());
        assert!(written(Source::Numbers(&large[..8]), Word::Long, None).is_none());
        assert!(written(Source::Numbers(&large), Word::Long, Some(&[1])).is_none());
        assert!(written(Source::Lists(2, &large), Word::Long, None).is_none());
        for splits in [[0, 3, 1], [0, 1, 9], [-1, 1, 2]] {
            assert!(written(Source::Ragged(&splits, &large), Word::Long, None).is_none());
        }
        let float = 1e300f64.to_bits() as i64;
        let floats = words(&[float, float]);
        assert!(written(Source::Numbers(&floats), Word::Float, None).is_none());
        assert!(written(Source::Numbers(&floats), Word::Double, None).is_some());
    }
}
