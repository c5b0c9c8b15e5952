//! Values of a key whose type is stated: texts that are a number, an integer or a boolean become these, scalars texts.
//!
//! A column of which a value is of another type, or wrong, is left to Python, which has the rules for all of them and
//! the errors (`pipelines/wire/stated/conversions.py`). So nothing may be made here of a text that means something else there.

use super::column::Column;
use super::scan::byte;
use crate::columnar::core::cells::{Cell, Kind};

/// A type that is stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stated {
    Number,
    Integer,
    Boolean,
    Text,
    /// One whose values Python makes.
    Other,
}

/// What a text is.
enum Value {
    Is(Cell),
    /// The number NaN.
    Missing,
}

impl Stated {
    pub fn named(name: &str) -> Stated {
        match name {
            "number" => Stated::Number,
            "integer" => Stated::Integer,
            "boolean" => Stated::Boolean,
            "text" => Stated::Text,
            _ => Stated::Other,
        }
    }

    /// Whether a value is of this type as it stands in the record.
    fn keeps(self, kind: Kind) -> bool {
        match self {
            Stated::Number => matches!(kind, Kind::Integer | Kind::Double),
            Stated::Integer => kind == Kind::Integer,
            Stated::Boolean => kind == Kind::Boolean,
            Stated::Text => matches!(kind, Kind::Text | Kind::Escaped),
            Stated::Other => false,
        }
    }

    /// The value of this type that a text is; `None` where Python decides.
    fn read(self, text: &[u8]) -> Option<Value> {
        let text = std::str::from_utf8(text).ok()?.trim_matches(' ');
        let (kind, bits) = match self {
            Stated::Number => {
                // Rust reads the same texts as the pattern in Python, and rounds as Python does.
                let number: f64 = text.parse().ok()?;
                if number.is_nan() {
                    return Some(Value::Missing);
                }
                if number.is_infinite() && !text.contains(['i', 'I']) {
                    return None;
                }
                (Kind::Double, number.to_bits())
            }
            Stated::Integer => (Kind::Integer, text.parse::<i64>().ok()? as u64),
            Stated::Boolean => {
                let is = |word| text.eq_ignore_ascii_case(word);
                let yes = is("true") || is("1");
                if !yes && !is("false") && !is("0") {
                    return None;
                }
                (Kind::Boolean, u64::from(yes))
            }
            Stated::Text | Stated::Other => return None,
        };
        Some(Value::Is(Cell {
            kind,
            bits,
            count: 0,
        }))
    }
}

/// Makes the values of a column of the type that is stated for it, or leaves them all to Python. `bytes` are those that
/// the column was read from.
pub fn convert(column: &mut Column, bytes: &[u8]) {
    let Some(stated) = column.stated else { return };
    if column.cells.iter().all(|cell| stated.keeps(cell.kind)) {
        return;
    }
    let done = match stated {
        // Scalars become texts where the column is written.
        Stated::Text => are_scalars(column, bytes),
        Stated::Other => false,
        _ => read(column, stated, bytes).is_some(),
    };
    column.left = !done;
}

fn are_scalars(column: &Column, bytes: &[u8]) -> bool {
    let extents = column.entries.extents.iter();
    let mut firsts = extents.map(|extent| byte(bytes, extent.start as usize));
    firsts.all(|first| first != b'[' && first != b'{')
}

fn read(column: &mut Column, stated: Stated, bytes: &[u8]) -> Option<()> {
    let mut there = vec![true; column.cells.len()];
    for (place, cell) in column.cells.iter_mut().enumerate() {
        if stated.keeps(cell.kind) {
            continue;
        }
        if cell.kind != Kind::Text {
            return None;
        }
        let extent = &column.entries.extents[place];
        let (start, length) = (extent.start as usize, extent.length as usize);
        match stated.read(&bytes[start + 1..start + length - 1])? {
            Value::Is(value) => *cell = value,
            Value::Missing => there[place] = false,
        }
    }
    if there.contains(&false) {
        column.entries.keep(&there);
        let mut kept = there.iter();
        column.cells.retain(|_| kept.next() == Some(&true));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::super::scan::Counts;
    use super::*;

    /// The column of these values, converted. A single quote stands for a double one.
    fn column(stated: Stated, values: &[&str]) -> Column {
        let text = values.join(",").replace('\'', "\"");
        let mut column = Column::new(b"n", true, 0, values.len());
        column.stated = Some(stated);
        let mut at = 0;
        for row in 0..values.len() {
            let end = column.add(text.as_bytes(), at, 0, row, &mut Counts::default());
            at = end.expect("a value") + 1;
        }
        convert(&mut column, text.as_bytes());
        column
    }

    fn bits(column: &Column) -> Vec<u64> {
        assert!(!column.left);
        column.cells.iter().map(|cell| cell.bits).collect()
    }

    #[test]
    fn texts_become_numbers_among_numbers() {
        let found = column(
            Stated::Number,
            &[
                "'23.5'", "7", "' -1e3 '", "'.5'", "1.5", "'+007.'", "'-iNf'", "'-0'",
            ],
        );
        let mut expected: Vec<u64> = [23.5, 0.0, -1000.0, 0.5, 1.5, 7.0, f64::NEG_INFINITY, -0.0]
            .iter()
            .map(|number: &f64| number.to_bits())
            .collect();
        expected[1] = 7;
        assert_eq!(bits(&found), expected);
    }

    #[test]
    fn nan_leaves_a_gap() {
        let values = ["'NaN'", "'1'", "null", "'nan'", "2.5", "'-NAN'"];
        let found = column(Stated::Number, &values);
        assert_eq!(found.entries.rows().collect::<Vec<_>>(), [1, 4]);
        assert_eq!(bits(&found), [1f64.to_bits(), 2.5f64.to_bits()]);
    }

    #[test]
    fn integers_and_booleans_come_of_texts() {
        let found = column(
            Stated::Integer,
            &["' -007 '", "5", "'+9223372036854775807'"],
        );
        assert_eq!(bits(&found), [-7i64 as u64, 5, i64::MAX as u64]);
        let found = column(
            Stated::Boolean,
            &["'TRUE'", "false", "'1'", "' False'", "'0'"],
        );
        assert_eq!(bits(&found), [1, 0, 1, 0, 0]);
    }

    #[test]
    fn what_is_of_no_such_type_is_left_to_python() {
        let left = |stated, value: &str| column(stated, &["'1'", value, "'1'"]).left;
        for value in [
            "'on'",
            "'21,5'",
            "'0x1F'",
            "'1_000'",
            "''",
            "'1e400'",
            "'1\\n'",
            "true",
            "[1]",
            "{}",
            "'\u{a0}1'",
            "'1 2'",
            "'\u{661}'",
            "'infinit'",
            "'1e'",
            "'.'",
            "'+ 1'",
            "1e400",
        ] {
            assert!(left(Stated::Number, value), "{value}");
        }
        for value in [
            "'1.0'",
            "1.0",
            "'9223372036854775808'",
            "'1e3'",
            "true",
            "''",
        ] {
            assert!(left(Stated::Integer, value), "{value}");
        }
        for value in ["1", "'yes'", "''", "'01'", "[true]"] {
            assert!(left(Stated::Boolean, value), "{value}");
        }
        assert!(left(Stated::Other, "'aGk='"));
        assert!(left(Stated::Text, "[1]"));
        assert!(!left(Stated::Text, "1.10"));
    }
}
