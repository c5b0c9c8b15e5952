//! Places inside of values, as JSON pointers name them (RFC 6901).

use super::scan::{self, Counts, byte, space};

/// A step of a pointer: a key, and which element it is if that is a number.
#[derive(PartialEq, Eq)]
pub struct Step {
    pub key: Vec<u8>,
    pub index: Option<usize>,
}

/// A value inside of a record or of its payload, and the key that it gets.
pub struct Field {
    pub key: Vec<u8>,
    pub steps: Vec<Step>,
}

/// The place behind these steps from a value that was scanned before; `None` if Python has to look for it.
pub fn follow(text: &[u8], mut place: Option<usize>, steps: &[Step]) -> Option<Option<usize>> {
    for step in steps {
        let Some(at) = place else { break };
        place = inside(text, at, step)?;
    }
    Some(place)
}

/// The place behind one step: of equal keys the last, or the element.
fn inside(bytes: &[u8], at: usize, step: &Step) -> Option<Option<usize>> {
    let mut counts = Counts::default();
    let mut place = None;
    match byte(bytes, at) {
        b'{' => {
            let mut at = space(bytes, at + 1);
            if byte(bytes, at) == b'}' {
                return Some(None);
            }
            loop {
                let (end, escaped) = scan::string(bytes, at)?;
                if escaped {
                    return None;
                }
                let own = bytes[at + 1..end - 1] == step.key;
                at = space(bytes, space(bytes, end) + 1);
                if own {
                    place = Some(at);
                }
                at = space(bytes, scan::skip(bytes, at, &mut counts)?);
                if byte(bytes, at) != b',' {
                    return Some(place);
                }
                at = space(bytes, at + 1);
            }
        }
        b'[' => {
            let Some(index) = step.index else {
                return Some(None);
            };
            let mut at = space(bytes, at + 1);
            if byte(bytes, at) == b']' {
                return Some(None);
            }
            for _ in 0..index {
                at = space(bytes, scan::skip(bytes, at, &mut counts)?);
                if byte(bytes, at) != b',' {
                    return Some(None);
                }
                at = space(bytes, at + 1);
            }
            Some(Some(at))
        }
        _ => Some(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn step(key: &str) -> Step {
        Step {
            key: key.as_bytes().to_vec(),
            index: key.parse().ok(),
        }
    }

    #[test]
    fn pointers_reach_the_last_of_equal_keys_and_elements() {
        let text = b"{\"a\":1,\"a\":[10,{\"b\":2}],\"\":3}";
        let after = |keys: &[&str]| {
            let steps: Vec<Step> = keys.iter().map(|key| step(key)).collect();
            follow(text, Some(0), &steps).expect("plain keys")
        };
        assert_eq!(text[after(&[""]).unwrap()], b'3');
        assert_eq!(text[after(&["a", "1", "b"]).unwrap()], b'2');
        assert_eq!(after(&["a", "2"]), None);
        assert_eq!(after(&["a", "1", "b", "2"]), None);
        assert_eq!(after(&["c", "a"]), None);
        assert_eq!(after(&[]), Some(0));
        assert_eq!(follow(b"{\"\\u0061\":1}", Some(0), &[step("a")]), None);
    }
}
