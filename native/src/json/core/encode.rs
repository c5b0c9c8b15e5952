//! Columns to JSON objects.

use crate::columnar::core::spans::{NULL, Spans};

/// The type of an array's numbers in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    Float64,
    Float32,
    Int64,
    Int32,
    Int16,
    Int8,
    Uint64,
    Uint32,
    Uint16,
    Uint8,
    Boolean,
}

impl Element {
    /// By numpy's name for it, in this machine's byte order.
    pub fn named(name: &str) -> Option<Element> {
        Some(match name {
            "float64" => Element::Float64,
            "float32" => Element::Float32,
            "int64" => Element::Int64,
            "int32" => Element::Int32,
            "int16" => Element::Int16,
            "int8" => Element::Int8,
            "uint64" => Element::Uint64,
            "uint32" => Element::Uint32,
            "uint16" => Element::Uint16,
            "uint8" => Element::Uint8,
            "bool" => Element::Boolean,
            _ => return None,
        })
    }

    /// Whether all of these numbers are finite.
    pub fn is_finite(self, values: &[u8]) -> bool {
        match self {
            Element::Float64 => values
                .chunks_exact(8)
                .all(|raw| f64::from_ne_bytes(eight(raw)).is_finite()),
            Element::Float32 => values
                .chunks_exact(4)
                .all(|raw| f32::from_ne_bytes(four(raw)).is_finite()),
            _ => true,
        }
    }

    pub fn size(self) -> usize {
        match self {
            Element::Float64 | Element::Int64 | Element::Uint64 => 8,
            Element::Float32 | Element::Int32 | Element::Uint32 => 4,
            Element::Int16 | Element::Uint16 => 2,
            Element::Int8 | Element::Uint8 | Element::Boolean => 1,
        }
    }
}

/// The values of a column on its way out.
pub enum Source<'a> {
    /// Texts of JSON values, as they are.
    Json(Spans<'a>),
    /// Strings, in UTF-8.
    Texts(Spans<'a>),
    /// Finite numbers, one a row, or an array of `shape` a row. Where `whole` is not 0, a float is an integer.
    Numbers {
        element: Element,
        shape: Vec<usize>,
        values: &'a [u8],
        present: Option<&'a [u8]>,
        whole: Option<&'a [u8]>,
    },
}

impl Source<'_> {
    /// Bytes of the numbers of a row; `None` for something else, or too many.
    fn width(&self) -> Option<usize> {
        match self {
            Source::Numbers { element, shape, .. } => shape
                .iter()
                .try_fold(element.size(), |size, length| size.checked_mul(*length)),
            _ => None,
        }
    }

    /// Whether it has a value, or none, for so many rows.
    pub fn has(&self, rows: usize) -> bool {
        match self {
            Source::Json(spans) | Source::Texts(spans) => {
                spans.starts.len() == rows && spans.lengths.len() == rows
            }
            Source::Numbers {
                values,
                present,
                whole,
                ..
            } => {
                self.width().and_then(|width| width.checked_mul(rows)) == Some(values.len())
                    && present.is_none_or(|present| present.len() == rows)
                    && whole.is_none_or(|whole| whole.len() == rows)
            }
        }
    }
}

/// A column: the text before each value (its key in quotes and a colon), and its values.
pub struct Output<'a> {
    pub prefix: Vec<u8>,
    pub source: Source<'a>,
}

/// The objects of all rows, one behind the other, and how long each is; `failed` rows have none.
pub fn objects(rows: usize, columns: &[Output<'_>], failed: &[usize]) -> (Vec<u8>, Vec<i64>) {
    let mut out = Vec::with_capacity(rows * 64);
    let mut lengths = Vec::with_capacity(rows);
    let mut failed = failed.iter().copied().peekable();
    for row in 0..rows {
        let start = out.len();
        if failed.next_if_eq(&row).is_some() {
            lengths.push(NULL);
            continue;
        }
        out.push(b'{');
        for column in columns {
            put(&mut out, column, row, start + 1);
        }
        out.push(b'}');
        lengths.push((out.len() - start) as i64);
    }
    (out, lengths)
}

fn put(out: &mut Vec<u8>, column: &Output<'_>, row: usize, begin: usize) {
    let head = |out: &mut Vec<u8>| {
        if out.len() > begin {
            out.push(b',');
        }
        out.extend_from_slice(&column.prefix);
    };
    match &column.source {
        Source::Json(spans) => {
            if let Some(text) = spans.get(row) {
                head(out);
                out.extend_from_slice(text);
            }
        }
        Source::Texts(spans) => {
            if let Some(text) = spans.get(row) {
                head(out);
                put_text(out, text);
            }
        }
        Source::Numbers {
            element,
            shape,
            values,
            present,
            whole,
        } => {
            if present.is_some_and(|present| present[row] == 0) {
                return;
            }
            head(out);
            let width = column.source.width().unwrap_or(0);
            let own = &values[row * width..(row + 1) * width];
            if whole.is_some_and(|whole| whole[row] != 0) {
                put_whole(out, own, shape);
            } else {
                put_array(out, own, *element, shape);
            }
        }
    }
}

/// Floats that are integers, as integers.
fn put_whole(out: &mut Vec<u8>, values: &[u8], shape: &[usize]) {
    let integers: Vec<u8> = values
        .chunks_exact(8)
        .flat_map(|float| (f64::from_ne_bytes(eight(float)) as i64).to_ne_bytes())
        .collect();
    put_array(out, &integers, Element::Int64, shape);
}

/// An array of finite numbers, of which these are the bytes.
pub fn put_array(out: &mut Vec<u8>, values: &[u8], element: Element, shape: &[usize]) {
    let Some((length, inner)) = shape.split_first() else {
        put_number(out, values, element);
        return;
    };
    out.push(b'[');
    let size = if *length == 0 {
        0
    } else {
        values.len() / length
    };
    for index in 0..*length {
        if index > 0 {
            out.push(b',');
        }
        put_array(
            out,
            &values[index * size..(index + 1) * size],
            element,
            inner,
        );
    }
    out.push(b']');
}

#[inline]
fn put_number(out: &mut Vec<u8>, raw: &[u8], element: Element) {
    match element {
        Element::Float64 => put_double(out, f64::from_ne_bytes(eight(raw))),
        Element::Float32 => put_single(out, f32::from_ne_bytes(four(raw))),
        Element::Int64 => put_integer(out, i64::from_ne_bytes(eight(raw))),
        Element::Int32 => put_integer(out, i32::from_ne_bytes(four(raw)).into()),
        Element::Int16 => put_integer(out, i16::from_ne_bytes([raw[0], raw[1]]).into()),
        Element::Int8 => put_integer(out, i8::from_ne_bytes([raw[0]]).into()),
        Element::Uint64 => put_natural(out, u64::from_ne_bytes(eight(raw))),
        Element::Uint32 => put_natural(out, u32::from_ne_bytes(four(raw)).into()),
        Element::Uint16 => put_natural(out, u16::from_ne_bytes([raw[0], raw[1]]).into()),
        Element::Uint8 => put_natural(out, raw[0].into()),
        Element::Boolean => out.extend_from_slice(if raw[0] == 0 { b"false" } else { b"true" }),
    }
}

fn eight(raw: &[u8]) -> [u8; 8] {
    raw.try_into().unwrap_or_default()
}

fn four(raw: &[u8]) -> [u8; 4] {
    raw.try_into().unwrap_or_default()
}

fn put_integer(out: &mut Vec<u8>, integer: i64) {
    if integer < 0 {
        out.push(b'-');
    }
    put_natural(out, integer.unsigned_abs());
}

fn put_natural(out: &mut Vec<u8>, mut natural: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (natural % 10) as u8;
        natural /= 10;
        if natural == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// As Python writes it: the fewest digits that give it back.
fn put_double(out: &mut Vec<u8>, float: f64) {
    if !float.is_finite() {
        return out.extend_from_slice(b"null");
    }
    let mut buffer = ryu::Buffer::new();
    put_digits(out, buffer.format_finite(float), float.abs());
}

fn put_single(out: &mut Vec<u8>, float: f32) {
    if !float.is_finite() {
        return out.extend_from_slice(b"null");
    }
    let mut buffer = ryu::Buffer::new();
    put_digits(out, buffer.format_finite(float), float.abs().into());
}

/// The number that ryu wrote, with an exponent where Python has one: from 1e16 on, and below 1e-4.
fn put_digits(out: &mut Vec<u8>, text: &str, size: f64) {
    // Most numbers, and both write them alike.
    if size == 0.0 || ((1e-3..1e15).contains(&size) && !text.contains('e')) {
        return out.extend_from_slice(text.as_bytes());
    }
    let text = match text.strip_prefix('-') {
        Some(rest) => {
            out.push(b'-');
            rest
        }
        None => text,
    };
    let (number, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mut exponent: i32 = exponent.parse().unwrap_or(0);
    let digits = [whole, fraction].concat();
    let first = digits.bytes().take_while(|digit| *digit == b'0').count();
    // The number is 0.DIGITS times ten to this, with `first` zeros in front.
    exponent += whole.len() as i32 - first as i32;
    let digits = digits[first..].trim_end_matches('0');
    if (-3..=16).contains(&exponent) {
        put_plain(out, digits, exponent);
        return;
    }
    out.extend_from_slice(&digits.as_bytes()[..1]);
    if digits.len() > 1 {
        out.push(b'.');
        out.extend_from_slice(&digits.as_bytes()[1..]);
    }
    let exponent = exponent - 1;
    out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
    if exponent.abs() < 10 {
        out.push(b'0');
    }
    put_natural(out, u64::from(exponent.unsigned_abs()));
}

/// 0.DIGITS times ten to this, without an exponent.
fn put_plain(out: &mut Vec<u8>, digits: &str, exponent: i32) {
    let count = usize::try_from(exponent).unwrap_or(0);
    let zeros = |out: &mut Vec<u8>, count: usize| out.extend(std::iter::repeat_n(b'0', count));
    if count == 0 {
        out.extend_from_slice(b"0.");
        zeros(out, exponent.unsigned_abs() as usize);
        out.extend_from_slice(digits.as_bytes());
    } else if count >= digits.len() {
        out.extend_from_slice(digits.as_bytes());
        zeros(out, count - digits.len());
        out.extend_from_slice(b".0");
    } else {
        out.extend_from_slice(&digits.as_bytes()[..count]);
        out.push(b'.');
        out.extend_from_slice(&digits.as_bytes()[count..]);
    }
}

/// A string in quotes. Only characters that need it are escaped.
pub fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    let mut done = 0;
    for (at, byte) in text.iter().enumerate() {
        let escaped: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            0x20.. => continue,
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0x08 => b"\\b",
            0x0c => b"\\f",
            _ => b"\\u00",
        };
        out.extend_from_slice(&text[done..at]);
        out.extend_from_slice(escaped);
        if escaped.len() > 2 {
            out.push(b'0' + (byte >> 4));
            out.push(b"0123456789abcdef"[usize::from(byte & 15)]);
        }
        done = at + 1;
    }
    out.extend_from_slice(&text[done..]);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn double(float: f64) -> String {
        let mut out = Vec::new();
        put_double(&mut out, float);
        String::from_utf8(out).unwrap()
    }

    fn single(float: f32) -> String {
        let mut out = Vec::new();
        put_single(&mut out, float);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn floats_are_written_as_python_does() {
        for text in [
            "0.0",
            "-0.0",
            "1.0",
            "30.5",
            "0.1",
            "100.0",
            "0.0001",
            "1e-05",
            "1.5e-05",
            "9999999999999998.0",
            "1e+16",
            "1.2345e+16",
            "5e-324",
            "1.7976931348623157e+308",
            "-1e-10",
            "123456789.125",
            "1e+100",
        ] {
            assert_eq!(double(text.parse().unwrap()), text);
        }
        for text in [
            "0.1",
            "0.33333334",
            "1e-07",
            "16777216.0",
            "100000000000000.0",
            "1e+16",
            "3.4028235e+38",
            "0.0001",
        ] {
            assert_eq!(single(text.parse().unwrap()), text);
        }
    }

    #[test]
    fn strings_are_escaped_where_they_must() {
        let mut out = Vec::new();
        put_text(&mut out, "é\"\\\n\x00\x1f\x7f".as_bytes());
        assert_eq!(out, "\"é\\\"\\\\\\n\\u0000\\u001f\x7f\"".as_bytes());
    }

    #[test]
    fn rows_have_what_they_have() {
        let values: Vec<u8> = [1.0f64, 2.5]
            .iter()
            .flat_map(|float| float.to_ne_bytes())
            .collect();
        let columns = [
            Output {
                prefix: b"\"n\":".to_vec(),
                source: Source::Numbers {
                    element: Element::Float64,
                    shape: vec![],
                    values: &values,
                    present: Some(&[1, 1]),
                    whole: Some(&[1, 0]),
                },
            },
            Output {
                prefix: b"\"s\":".to_vec(),
                source: Source::Texts(Spans {
                    bytes: b"ab",
                    starts: &[0, 0],
                    lengths: &[2, NULL],
                }),
            },
        ];
        let (out, lengths) = objects(2, &columns, &[]);
        assert_eq!(out, b"{\"n\":1,\"s\":\"ab\"}{\"n\":2.5}");
        assert_eq!(lengths, [16, 9]);
        assert_eq!(objects(2, &columns, &[0]).1, [NULL, 9]);
    }
}
