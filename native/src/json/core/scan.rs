//! JSON (RFC 8259) in bytes: where values end, and the values of numbers and plain strings.
//!
//! Everything here takes bytes that are valid UTF-8. `None` means: this is not plain enough, or broken; Python's parser
//! decides. So nothing may be accepted here that it refuses, but much may be left to it.

use super::decimal;

/// Limits on the brackets, colons and commas of a record, counted as it is scanned; beyond one it is left to Python.
#[derive(Clone, Copy)]
pub struct Limits {
    pub depth: usize,
    pub keys: usize,
    pub elements: usize,
}

#[derive(Clone, Copy, Default)]
pub struct Counts {
    brackets: usize,
    colons: usize,
    commas: usize,
}

impl Counts {
    /// Whether a record of these counts is within the limits, however it is nested.
    pub fn within(&self, limits: &Limits) -> bool {
        self.brackets <= limits.depth
            && self.colons <= limits.keys
            && self.brackets + self.colons <= limits.keys.saturating_mul(10)
            && self.brackets + self.commas <= limits.elements
    }

    pub fn bracket(&mut self) {
        self.brackets += 1;
    }

    pub fn colon(&mut self) {
        self.colons += 1;
    }

    pub fn comma(&mut self) {
        self.commas += 1;
    }
}

/// Nested levels that are followed here; deeper records are left to Python.
const LEVELS: usize = 64;

/// A number. Integers beyond 64 bits and floats beyond the largest are `Beyond`: no values, but valid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Integer(i64),
    Float(f64),
    Beyond,
}

/// The byte at this place; 0, which stands nowhere in valid JSON, behind the end.
#[inline(always)]
pub fn byte(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

/// The first place from `at` on that is no white space.
#[inline(always)]
pub fn space(bytes: &[u8], at: usize) -> usize {
    // Most programs write none or one.
    if byte(bytes, at) > b' ' {
        return at;
    }
    if byte(bytes, at) == b' ' && byte(bytes, at + 1) > b' ' {
        return at + 1;
    }
    more_space(bytes, at)
}

#[inline(never)]
fn more_space(bytes: &[u8], mut at: usize) -> usize {
    while matches!(byte(bytes, at), b' ' | b'\t' | b'\n' | b'\r') {
        at += 1;
    }
    at
}

/// Where the string whose opening quote is at `at` ends, behind its closing quote, and whether it has escapes.
#[inline]
pub fn string(bytes: &[u8], at: usize) -> Option<(usize, bool)> {
    let mut at = at + 1;
    let mut escaped = false;
    loop {
        while let Some(eight) = bytes.get(at..at + 8) {
            let odd = odd_bytes(u64::from_le_bytes(eight.try_into().ok()?));
            if odd != 0 {
                at += odd.trailing_zeros() as usize / 8;
                break;
            }
            at += 8;
        }
        match *bytes.get(at)? {
            b'"' => return Some((at + 1, escaped)),
            b'\\' => {
                escaped = true;
                at = escape(bytes, at)?;
            }
            0..0x20 => return None,
            _ => at += 1,
        }
    }
}

/// The highest bit of each of eight bytes that is a quote, a backslash or below a space; the lowest such bit is right,
/// those above it may be set for other bytes.
#[inline(always)]
fn odd_bytes(eight: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    let zero = |bytes: u64| bytes.wrapping_sub(ONES) & !bytes;
    let control = eight.wrapping_sub(ONES * 0x20) & !eight;
    let quote = zero(eight ^ (ONES * u64::from(b'"')));
    let backslash = zero(eight ^ (ONES * u64::from(b'\\')));
    (control | quote | backslash) & (ONES * 0x80)
}

#[cold]
fn escape(bytes: &[u8], at: usize) -> Option<usize> {
    match *bytes.get(at + 1)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(at + 2),
        b'u' => {
            let digits = bytes.get(at + 2..at + 6)?;
            digits.iter().all(u8::is_ascii_hexdigit).then_some(at + 6)
        }
        _ => None,
    }
}

/// The text of a string without its quotes, whose escapes are valid, at the end of `out`. `None` for half of a surrogate pair.
pub fn unescaped(raw: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut at = 0;
    while let Some(&next) = raw.get(at) {
        if next != b'\\' {
            out.push(next);
            at += 1;
            continue;
        }
        let escaped = *raw.get(at + 1)?;
        at += 2;
        let plain = match escaped {
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let mut unit = hex(raw, at)?;
                at += 4;
                if (0xD800..0xDC00).contains(&unit) {
                    if raw.get(at..at + 2) != Some(b"\\u") {
                        return None;
                    }
                    let low = hex(raw, at + 2)?;
                    if !(0xDC00..0xE000).contains(&low) {
                        return None;
                    }
                    at += 6;
                    unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
                }
                let char = char::from_u32(unit)?;
                out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            other => other,
        };
        out.push(plain);
    }
    Some(())
}

fn hex(raw: &[u8], at: usize) -> Option<u32> {
    let digits = raw.get(at..at + 4)?;
    digits.iter().try_fold(0, |sum, digit| {
        Some(sum * 16 + char::from(*digit).to_digit(16)?)
    })
}

/// Digits that fit 64 bits for sure.
const DIGITS: usize = 19;

/// The number at `at`, and where it ends.
#[inline]
pub fn number(bytes: &[u8], at: usize) -> Option<(Number, usize)> {
    let start = at;
    let negative = byte(bytes, at) == b'-';
    let first = at + usize::from(negative);
    let (mut at, mut digits) = decimal::digits(bytes, first, 0);
    let whole = at - first;
    if whole == 0 || (whole > 1 && bytes[first] == b'0') {
        return None;
    }
    let next = byte(bytes, at);
    if next != b'.' && next | 0x20 != b'e' {
        return Some((integer(digits, whole, negative), at));
    }
    let mut tens = 0i64;
    if next == b'.' {
        let begin = at + 1;
        (at, digits) = decimal::many_digits(bytes, begin, digits);
        if at == begin {
            return None;
        }
        tens = begin as i64 - at as i64;
    }
    let mantissa = &bytes[first..at];
    let count = whole + tens.unsigned_abs() as usize;
    if byte(bytes, at) | 0x20 == b'e' {
        at += 1;
        let down = byte(bytes, at) == b'-';
        if matches!(byte(bytes, at), b'+' | b'-') {
            at += 1;
        }
        let begin = at;
        let mut power = 0i64;
        while let digit @ b'0'..=b'9' = byte(bytes, at) {
            power = (power * 10 + i64::from(digit - b'0')).min(1 << 40);
            at += 1;
        }
        if at == begin {
            return None;
        }
        tens += if down { -power } else { power };
    }
    let fits = count <= DIGITS || significant(mantissa) <= DIGITS;
    if let Some(float) = fits.then(|| decimal::nearest(digits, tens)).flatten() {
        return Some((Number::Float(if negative { -float } else { float }), at));
    }
    let text = std::str::from_utf8(&bytes[start..at]).ok()?;
    let float: f64 = text.parse().ok()?;
    Some((
        if float.is_finite() {
            Number::Float(float)
        } else {
            Number::Beyond
        },
        at,
    ))
}

/// How many digits there are from the first that is not zero on.
#[cold]
fn significant(mantissa: &[u8]) -> usize {
    mantissa
        .iter()
        .filter(|digit| **digit != b'.')
        .skip_while(|digit| **digit == b'0')
        .count()
}

/// Where the word for NaN or infinity at `at` ends, as programs in C and Python write it, which is no JSON.
#[cold]
pub fn not_a_number(bytes: &[u8], at: usize) -> Option<usize> {
    let at = at + usize::from(byte(bytes, at) == b'-');
    let is_word = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
    let length = bytes.get(at..)?.iter().take_while(is_word).count();
    let word = &bytes[at..at + length];
    let words: [&[u8]; 3] = [b"nan", b"inf", b"infinity"];
    let known = words.iter().any(|known| word.eq_ignore_ascii_case(known));
    known.then_some(at + length)
}

/// Where the number at `at` ends.
#[inline]
fn number_end(bytes: &[u8], at: usize) -> Option<usize> {
    let digits = |at: usize| {
        let end = decimal::digits_end(bytes, at);
        (end > at).then_some(end)
    };
    let first = at + usize::from(byte(bytes, at) == b'-');
    let mut at = digits(first)?;
    if bytes[first] == b'0' && at > first + 1 {
        return None;
    }
    if byte(bytes, at) == b'.' {
        at = digits(at + 1)?;
    }
    if byte(bytes, at) | 0x20 == b'e' {
        at += 1;
        at = digits(at + usize::from(matches!(byte(bytes, at), b'+' | b'-')))?;
    }
    Some(at)
}

#[inline]
fn integer(digits: u64, count: usize, negative: bool) -> Number {
    // Nineteen digits do not wrap round, twenty may.
    if count > DIGITS {
        return Number::Beyond;
    }
    if negative {
        if digits <= 1 << 63 {
            return Number::Integer((digits as i64).wrapping_neg());
        }
    } else if let Ok(integer) = i64::try_from(digits) {
        return Number::Integer(integer);
    }
    Number::Beyond
}

/// Where the value that begins at `at` ends. It is checked as Python's parser would.
#[inline]
pub fn skip(bytes: &[u8], at: usize, counts: &mut Counts) -> Option<usize> {
    match byte(bytes, at) {
        b'-' | b'0'..=b'9' => number_end(bytes, at),
        b'"' => string(bytes, at).map(|(end, _)| end),
        b'{' | b'[' => container(bytes, at, counts),
        _ => scalar(bytes, at),
    }
}

#[inline]
fn scalar(bytes: &[u8], at: usize) -> Option<usize> {
    let word: &[u8] = match byte(bytes, at) {
        b't' => b"true",
        b'f' => b"false",
        b'n' => b"null",
        _ => return number_end(bytes, at),
    };
    bytes[at..].starts_with(word).then_some(at + word.len())
}

/// Where the object or array that begins at `at` ends.
fn container(bytes: &[u8], at: usize, counts: &mut Counts) -> Option<usize> {
    // One bit a level: whether it is an object.
    let mut objects = 0u64;
    let mut depth = 0;
    let mut at = at;
    loop {
        // A value begins at `at`.
        match byte(bytes, at) {
            open @ (b'{' | b'[') => {
                if depth == LEVELS {
                    return None;
                }
                counts.bracket();
                depth += 1;
                objects = objects << 1 | u64::from(open == b'{');
                at = space(bytes, at + 1);
                if byte(bytes, at) == if open == b'{' { b'}' } else { b']' } {
                    at = space(bytes, at);
                } else {
                    if open == b'{' {
                        at = key(bytes, at, counts)?;
                    }
                    continue;
                }
            }
            b'"' => at = string(bytes, at)?.0,
            _ => at = scalar(bytes, at)?,
        }
        // A value ended, or an empty container is about to.
        loop {
            at = space(bytes, at);
            match (byte(bytes, at), objects & 1 == 1) {
                (b'}', true) | (b']', false) => {
                    at += 1;
                    depth -= 1;
                    objects >>= 1;
                    if depth == 0 {
                        return Some(at);
                    }
                }
                (b',', object) => {
                    counts.comma();
                    at = space(bytes, at + 1);
                    if object {
                        at = key(bytes, at, counts)?;
                    }
                    break;
                }
                _ => return None,
            }
        }
    }
}

/// Where the value of the member whose key begins at `at` begins.
#[inline]
fn key(bytes: &[u8], at: usize, counts: &mut Counts) -> Option<usize> {
    if byte(bytes, at) != b'"' {
        return None;
    }
    let (end, _) = string(bytes, at)?;
    let at = space(bytes, end);
    if byte(bytes, at) != b':' {
        return None;
    }
    counts.colon();
    Some(space(bytes, at + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> bool {
        skip(text.as_bytes(), 0, &mut Counts::default()) == Some(text.len())
    }

    #[test]
    fn values_end_where_they_end() {
        for text in [
            "1",
            "-0",
            "0.5",
            "1e5",
            "1E-5",
            "12.50e+3",
            "true",
            "false",
            "null",
            "\"\"",
            "\"a\\n\\u00e9\\\"\"",
            "[]",
            "{}",
            "[1,[2,{}],[]]",
            "{\"a\" : {\"b\":[ 1 , \"]\" ]}, \"c\":{}}",
            "[ ]",
            "{ }",
        ] {
            assert!(whole(text), "{text}");
        }
        for text in [
            "",
            "01",
            "-",
            "1.",
            ".5",
            "+1",
            "1e",
            "tru",
            "nul",
            "\"",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"\x01\"",
            "[",
            "[1,]",
            "[1 2]",
            "{\"a\"}",
            "{\"a\":}",
            "{a:1}",
            "{\"a\":1,}",
            "[}",
            "{]",
            "[1}",
            "{\"a\":1]",
            "NaN",
            "-Infinity",
            "'a'",
        ] {
            assert!(!whole(text), "{text}");
        }
    }

    #[test]
    fn strings_end_at_their_quote_wherever_it_stands() {
        for length in 0..40 {
            for (odd, escaped) in [("", false), ("\\n", true), ("\\\"", true), ("é", false)] {
                for place in 0..=length {
                    let text = format!(
                        "\"{}{odd}{}\" \"",
                        "x".repeat(place),
                        "~".repeat(length - place)
                    );
                    let end = text.len() - 2;
                    assert_eq!(string(text.as_bytes(), 0), Some((end, escaped)), "{text}");
                    assert_eq!(string(&text.as_bytes()[..end - 1], 0), None);
                }
            }
            let text = format!("\"{}\x1f\"", "x".repeat(length));
            assert_eq!(string(text.as_bytes(), 0), None);
        }
    }

    #[test]
    fn numbers_end_alike_whether_they_are_read_or_not() {
        for text in [
            "1", "-", "-1", "01", "0", "0.5", "1.", "1.e5", "1e", "1e+", "1e+5", "1E-05", "12a",
            "", "-0.0e0",
        ] {
            let read = number(text.as_bytes(), 0).map(|(_, end)| end);
            assert_eq!(number_end(text.as_bytes(), 0), read, "{text}");
        }
    }

    #[test]
    fn numbers_are_what_they_say() {
        let read = |text: &str| number(text.as_bytes(), 0).map(|(number, _)| number);
        assert_eq!(read("9223372036854775807"), Some(Number::Integer(i64::MAX)));
        assert_eq!(
            read("-9223372036854775808"),
            Some(Number::Integer(i64::MIN))
        );
        assert_eq!(read("9223372036854775808"), Some(Number::Beyond));
        assert_eq!(read("-9223372036854775809"), Some(Number::Beyond));
        assert_eq!(read("99999999999999999999"), Some(Number::Beyond));
        assert_eq!(read("1e400"), Some(Number::Beyond));
        assert_eq!(read("1e999999999999999999999"), Some(Number::Beyond));
        for text in [
            "0.1",
            "1e22",
            "1e23",
            "123456789012345678901234567890.5",
            "5e-324",
            "2.2250738585072011e-308",
            "1e-400",
            "0.30000000000000004",
            "9007199254740993.0",
            "1.7976931348623157e308",
            "100000000000000000000000.0",
        ] {
            assert_eq!(
                read(text),
                Some(Number::Float(text.parse().unwrap())),
                "{text}"
            );
        }
        assert!(matches!(read("-0.0"), Some(Number::Float(zero)) if zero.is_sign_negative()));
    }

    #[test]
    fn escapes_are_characters() {
        let read = |text: &str| {
            let mut out = Vec::new();
            unescaped(text.as_bytes(), &mut out).map(|()| String::from_utf8(out).unwrap())
        };
        assert_eq!(read("a\\u00e9\\ud83d\\ude00\\n\\/é").unwrap(), "aé😀\n/é");
        for half in ["\\ud800", "\\ud800x", "\\ud800\\u0041", "\\udc00"] {
            assert_eq!(read(half), None);
        }
    }
}
