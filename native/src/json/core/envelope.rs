//! Payloads that hold their records somewhere inside: the way to them, and values beside it.

use super::pointer::{Field, Step, follow};
use super::scan::{self, Counts, byte, space};

/// Steps to the records that are followed here; a longer way is left to Python.
const LEVELS: usize = 64;

/// Where the records of payloads are.
#[derive(Default)]
pub struct Envelope {
    /// The way to the record, or to the array of records; empty: the payload is it.
    at: Vec<Step>,
    /// Values of the payload that each of its records gets.
    pub outer: Vec<Field>,
    /// How many steps each of these shares with the way.
    shared: Vec<usize>,
}

/// Places in the payload that is read, as far as its way was walked.
#[derive(Default)]
pub struct Places {
    /// The values on the way, from the payload on.
    way: Vec<usize>,
    /// The value behind the first step of each outer field that leaves the way.
    beside: Vec<Option<usize>>,
}

/// Reads what is at the end of the way, and returns where that ends.
pub type Read<'a> = &'a mut dyn FnMut(usize, &mut Counts) -> Option<usize>;

impl Envelope {
    pub fn new(at: Vec<Step>, outer: Vec<Field>) -> Envelope {
        let shared = |field: &Field| {
            let pairs = field.steps.iter().zip(&at);
            pairs.take_while(|(step, other)| step == other).count()
        };
        Envelope {
            shared: outer.iter().map(shared).collect(),
            at,
            outer,
        }
    }

    /// Whether payloads are records, or have them as elements or lines.
    pub fn is_empty(&self) -> bool {
        self.at.is_empty()
    }

    /// Scans the payload that begins at `at`, and calls `read` for what is at the end of the way; where it ends.
    pub fn walk(
        &self,
        text: &[u8],
        at: usize,
        places: &mut Places,
        counts: &mut Counts,
        read: Read<'_>,
    ) -> Option<usize> {
        if self.at.len() > LEVELS {
            return None;
        }
        places.way.clear();
        places.beside.clear();
        places.beside.resize(self.outer.len(), None);
        self.value(text, at, places, counts, read)
    }

    /// The place of an outer field in the payload that was walked; `None` if Python has to look for it.
    pub fn place(&self, text: &[u8], outer: usize, places: &Places) -> Option<Option<usize>> {
        let (steps, shared) = (&self.outer[outer].steps, self.shared[outer]);
        if shared == steps.len() || shared == self.at.len() {
            return follow(text, Some(places.way[shared]), &steps[shared..]);
        }
        follow(text, places.beside[outer], &steps[shared + 1..])
    }

    fn value(
        &self,
        text: &[u8],
        at: usize,
        places: &mut Places,
        counts: &mut Counts,
        read: Read<'_>,
    ) -> Option<usize> {
        let level = places.way.len();
        places.way.push(at);
        match (self.at.get(level), byte(text, at)) {
            (None, _) => read(at, counts),
            (Some(step), b'{') => self.object(text, at, (step, level), places, counts, read),
            (Some(step), b'[') => self.array(text, at, (step, level), places, counts, read),
            _ => None,
        }
    }

    fn object(
        &self,
        text: &[u8],
        begin: usize,
        (step, level): (&Step, usize),
        places: &mut Places,
        counts: &mut Counts,
        read: Read<'_>,
    ) -> Option<usize> {
        counts.bracket();
        let mut at = space(text, begin + 1);
        let mut is_there = false;
        loop {
            if byte(text, at) != b'"' {
                return None;
            }
            let (end, escaped) = scan::string(text, at)?;
            if escaped {
                return None;
            }
            let key = &text[at + 1..end - 1];
            at = space(text, end);
            if byte(text, at) != b':' {
                return None;
            }
            counts.colon();
            at = space(text, at + 1);
            self.note(level, at, places, |step| step.key == key);
            let end = if step.key == key {
                if is_there {
                    // The last of equal keys counts.
                    return None;
                }
                is_there = true;
                self.value(text, at, places, counts, read)?
            } else {
                scan::skip(text, at, counts)?
            };
            at = space(text, end);
            match byte(text, at) {
                b',' => {
                    counts.comma();
                    at = space(text, at + 1);
                }
                b'}' => return is_there.then_some(at + 1),
                _ => return None,
            }
        }
    }

    fn array(
        &self,
        text: &[u8],
        begin: usize,
        (step, level): (&Step, usize),
        places: &mut Places,
        counts: &mut Counts,
        read: Read<'_>,
    ) -> Option<usize> {
        counts.bracket();
        let index = step.index?;
        let mut at = space(text, begin + 1);
        for number in 0.. {
            self.note(level, at, places, |step| step.index == Some(number));
            let end = if number == index {
                self.value(text, at, places, counts, read)?
            } else {
                scan::skip(text, at, counts)?
            };
            at = space(text, end);
            match byte(text, at) {
                b',' => {
                    counts.comma();
                    at = space(text, at + 1);
                }
                b']' => return (number >= index).then_some(at + 1),
                _ => return None,
            }
        }
        None
    }

    /// A value begins at `at` beside the way, on this level of it.
    fn note(&self, level: usize, at: usize, places: &mut Places, is_it: impl Fn(&Step) -> bool) {
        for (number, field) in self.outer.iter().enumerate() {
            if self.shared[number] == level && field.steps.get(level).is_some_and(&is_it) {
                places.beside[number] = Some(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(pointer: &str) -> Vec<Step> {
        let steps = pointer.split('/').skip(1);
        steps
            .map(|key| Step {
                key: key.into(),
                index: key.parse().ok(),
            })
            .collect()
    }

    /// The first byte of what is at `at` and at each of `outer`, and whether the walk ended with the text.
    fn walked(text: &str, at: &str, outer: &[&str]) -> Option<(u8, Vec<Option<u8>>)> {
        let fields = outer.iter().map(|pointer| Field {
            key: vec![],
            steps: steps(pointer),
        });
        let envelope = Envelope::new(steps(at), fields.collect());
        let (text, mut places, mut first) = (text.as_bytes(), Places::default(), 0);
        let mut read = |at: usize, counts: &mut Counts| {
            first = text[at];
            scan::skip(text, at, counts)
        };
        let end = envelope.walk(text, 0, &mut places, &mut Counts::default(), &mut read)?;
        assert_eq!(end, text.len());
        let outer = (0..outer.len()).map(|outer| envelope.place(text, outer, &places));
        let bytes = outer.map(|place| place.expect("plain keys").map(|at| text[at]));
        Some((first, bytes.collect()))
    }

    #[test]
    fn the_record_is_at_the_end_of_the_way_and_outer_values_are_anywhere() {
        let text = "{\"s\": 1, \"p\": {\"b\": [2, 3], \"a\": {\"i\": 4}, \"s\": 5}, \"z\": [6, {\"y\": 7}]}";
        let outer = [
            "/s", "/p/s", "/p/b/1", "/p/a/i", "/p/a", "/p", "", "/z/1/y", "/z/1/n", "/n", "/p/n/m",
        ];
        let places = [b'1', b'5', b'3', b'4', b'{', b'{', b'{', b'7', 0, 0, 0];
        let places = places.map(|byte| (byte != 0).then_some(byte));
        assert_eq!(walked(text, "/p/a", &outer), Some((b'{', places.into())));
        assert_eq!(walked(text, "/p/b/0", &[]), Some((b'2', vec![])));
        assert_eq!(
            walked(text, "/z/1/y", &["/z/0"]),
            Some((b'7', vec![Some(b'6')]))
        );
    }

    #[test]
    fn what_is_not_there_or_there_twice_is_left_to_python() {
        for (text, at) in [
            ("{\"a\":1}", "/b"),
            ("{}", "/a"),
            ("[]", "/0"),
            ("[1]", "/1"),
            ("[1]", "/a"),
            ("7", "/a"),
            ("{\"a\":1,\"a\":2}", "/a"),
            ("{\"\\u0061\":1}", "/a"),
            ("{\"b\":01,\"a\":1}", "/a"),
            ("{\"a\":1,}", "/a"),
            ("{\"a\":1", "/a"),
            ("[1,]", "/0"),
            ("{\"a\" 1}", "/a"),
        ] {
            assert_eq!(walked(text, at, &[]), None, "{text} {at}");
        }
        let deep = "/a".repeat(LEVELS + 1);
        let text = "{\"a\":".repeat(LEVELS + 1) + "1" + &"}".repeat(LEVELS + 1);
        assert_eq!(walked(&text, &deep, &[]), None);
    }

    #[test]
    fn of_equal_keys_beside_the_way_the_last_counts() {
        let found = walked("{\"s\":1,\"a\":9,\"s\":2}", "/a", &["/s"]);
        assert_eq!(found, Some((b'9', vec![Some(b'2')])));
    }
}
