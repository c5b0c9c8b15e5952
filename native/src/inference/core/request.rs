//! A request of the Open Inference Protocol in JSON, taken apart: the data of its inputs, its id, and all the rest, which
//! is the same for many requests of a client.

use super::numbers::{Element, list};
use crate::json::core::scan::{Counts, byte, skip, space, string};

#[derive(Debug, Default, PartialEq)]
pub struct Request {
    /// The text with the number of elements in place of each list that was read, and an empty text in place of the id.
    pub rest: Vec<u8>,
    /// The id, without its quotes.
    pub id: Option<(usize, usize)>,
    /// The elements of all lists that were read, and where those of each end.
    pub data: Vec<u8>,
    pub ends: Vec<usize>,
}

/// Takes a request apart, whose bytes are valid UTF-8.
///
/// Lists are read where the datatype stands before them. Those of other datatypes than numbers stay in the rest. `None`
/// for anything that is not valid JSON, that has a key twice where that matters, or keys with escapes.
pub fn read(text: &[u8]) -> Option<Request> {
    let mut reader = Reader {
        text,
        copied: 0,
        request: Request::default(),
    };
    let mut seen_inputs = false;
    let at = members(text, space(text, 0), |name, at| match name {
        b"id" if reader.request.id.is_none() => {
            let (end, escaped) = plain_string(text, at)?;
            if escaped {
                return None;
            }
            reader.request.id = Some((at + 1, end - 1));
            reader.replace(at + 1, end - 1, b"");
            Some(end)
        }
        b"inputs" if !seen_inputs => {
            seen_inputs = true;
            reader.inputs(at)
        }
        b"id" | b"inputs" => None,
        _ => skip(text, at, &mut Counts::default()),
    })?;
    if space(text, at) != text.len() {
        return None;
    }
    let end = text.len();
    reader.replace(end, end, b"");
    Some(reader.request)
}

struct Reader<'a> {
    text: &'a [u8],
    /// How far the text was copied to the rest.
    copied: usize,
    request: Request,
}

impl Reader<'_> {
    /// Copies the text up to `start`, and `other` in place of what is between `start` and `end`.
    fn replace(&mut self, start: usize, end: usize, other: &[u8]) {
        let rest = &mut self.request.rest;
        rest.extend_from_slice(&self.text[self.copied..start]);
        rest.extend_from_slice(other);
        self.copied = end;
    }

    fn inputs(&mut self, at: usize) -> Option<usize> {
        let text = self.text;
        if byte(text, at) != b'[' {
            return None;
        }
        let mut at = space(text, at + 1);
        if byte(text, at) == b']' {
            return Some(at + 1);
        }
        loop {
            at = space(text, self.input(at)?);
            match byte(text, at) {
                b',' => at = space(text, at + 1),
                b']' => return Some(at + 1),
                _ => return None,
            }
        }
    }

    fn input(&mut self, at: usize) -> Option<usize> {
        let text = self.text;
        let mut datatype = None;
        let mut seen_data = false;
        members(text, at, |name, at| match name {
            b"datatype" if datatype.is_none() => {
                let (end, escaped) = plain_string(text, at)?;
                datatype = Some(&text[at + 1..end - 1]);
                (!escaped).then_some(end)
            }
            b"data" if !seen_data => {
                seen_data = true;
                if byte(text, at) != b'[' {
                    return None;
                }
                match datatype.and_then(Element::named) {
                    Some(element) => self.data(at, element),
                    None => skip(text, at, &mut Counts::default()),
                }
            }
            b"datatype" | b"data" => None,
            _ => skip(text, at, &mut Counts::default()),
        })
    }

    fn data(&mut self, at: usize, element: Element) -> Option<usize> {
        let (count, end) = list(self.text, at, element, &mut self.request.data)?;
        self.request.ends.push(self.request.data.len());
        self.replace(at, end, count.to_string().as_bytes());
        Some(end)
    }
}

/// Where the object that begins at `at` ends; `member` is given each name and where its value begins, and gives where
/// that ends.
#[inline(always)]
fn members<'a>(
    text: &'a [u8],
    at: usize,
    mut member: impl FnMut(&'a [u8], usize) -> Option<usize>,
) -> Option<usize> {
    if byte(text, at) != b'{' {
        return None;
    }
    let mut at = space(text, at + 1);
    if byte(text, at) == b'}' {
        return Some(at + 1);
    }
    loop {
        let (end, escaped) = plain_string(text, at)?;
        if escaped {
            return None;
        }
        let name = &text[at + 1..end - 1];
        at = space(text, end);
        if byte(text, at) != b':' {
            return None;
        }
        at = space(text, member(name, space(text, at + 1))?);
        match byte(text, at) {
            b',' => at = space(text, at + 1),
            b'}' => return Some(at + 1),
            _ => return None,
        }
    }
}

fn plain_string(text: &[u8], at: usize) -> Option<(usize, bool)> {
    if byte(text, at) != b'"' {
        return None;
    }
    string(text, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(text: &str) -> Option<String> {
        read(text.as_bytes()).map(|request| String::from_utf8(request.rest).unwrap())
    }

    #[test]
    fn lists_of_numbers_and_the_id_are_taken_out() {
        let text = r#" {"id": "7é", "inputs": [{"name": "x", "shape": [2], "datatype": "INT8", "data": [1, 2]},
            {"name": "s", "datatype": "BYTES", "data": ["a]"]}, {"datatype":"BOOL","data":[[true]]}], "more": {"data": [1]}} "#;
        let request = read(text.as_bytes()).unwrap();
        let expected = text
            .replace("7é", "")
            .replace("[1, 2]", "2")
            .replace("[[true]]", "1");
        assert_eq!(String::from_utf8(request.rest).unwrap(), expected);
        assert_eq!(request.data, [1, 2, 1]);
        assert_eq!(request.ends, [2, 3]);
        let (start, end) = request.id.unwrap();
        assert_eq!(&text[start..end], "7é");
    }

    #[test]
    fn what_is_not_plain_is_left_to_python() {
        for text in [
            "",
            "[]",
            "{",
            "{}x",
            r#"{"id": 7}"#,
            r#"{"id": "\n"}"#,
            r#"{"id": "a", "id": "b"}"#,
            r#"{"inputs": 7}"#,
            r#"{"inputs": [7]}"#,
            r#"{"inputs": [], "inputs": []}"#,
            r#"{"\u0069nputs": []}"#,
            r#"{"inputs": [{"data": 7}]}"#,
            r#"{"inputs": [{"d\u0061ta": 7}]}"#,
            r#"{"inputs": [{"datatype": "INT8", "data": [1], "data": [2]}]}"#,
            r#"{"inputs": [{"datatype": "INT8", "datatype": "INT8"}]}"#,
            r#"{"inputs": [{"datatype": "INT8", "data": [300]}]}"#,
            r#"{"inputs": [{"datatype": 8}]}"#,
            r#"{"inputs": [{}},]}"#,
        ] {
            assert_eq!(rest(text), None, "{text}");
        }
        for text in [
            "{}",
            r#"{"inputs": []}"#,
            r#"{"inputs": [{"data": [1], "datatype": "INT8"}]}"#,
            r#"{"inputs": [{"datatype": "FP16", "data": [1]}]}"#,
            r#"{"outputs": [{"datatype": "INT8", "data": [1]}]}"#,
        ] {
            assert_eq!(rest(text).as_deref(), Some(text));
        }
    }
}
