//! What must hold of any bytes that are read as a request, and that another parser takes what is taken here.

#[path = "../../src/inference/core/mod.rs"]
pub mod core;

use serde::de::IgnoredAny;
use serde_json::Value;

use self::core::numbers::Element;
use self::core::request::read;

/// Takes requests apart, which NUL stands between.
pub fn requests(bytes: &[u8]) {
    for text in bytes.split(|byte| *byte == 0) {
        if std::str::from_utf8(text).is_ok() {
            request(text);
        }
    }
}

fn request(text: &[u8]) {
    let Some(request) = read(text) else { return };
    serde_json::from_slice::<IgnoredAny>(text).expect("valid JSON");
    // Numbers beyond any float, which are left for Python to judge, have no value here.
    let Ok(whole) = serde_json::from_slice::<Value>(text) else {
        return;
    };
    let rest: Value = serde_json::from_slice(&request.rest).expect("still valid JSON");
    if let Some((start, end)) = request.id {
        assert_eq!(whole["id"].as_str().unwrap().as_bytes(), &text[start..end]);
        assert_eq!(rest["id"], "");
    }
    let mut start = 0;
    let mut ends = request.ends.iter();
    let none = Vec::new();
    let before = whole["inputs"].as_array().unwrap_or(&none);
    let after = rest["inputs"].as_array().unwrap_or(&none);
    assert_eq!(before.len(), after.len());
    for (before, after) in before.iter().zip(after) {
        let Some(count) = after["data"].as_u64() else {
            assert_eq!(before["data"], after["data"]);
            continue;
        };
        let end = *ends.next().expect("as many lists");
        let element = Element::named(before["datatype"].as_str().unwrap().as_bytes()).unwrap();
        let data = &request.data[start..end];
        assert_eq!(data.len() as u64, count * width(element));
        assert_eq!(elements(&before["data"]), count);
        start = end;
    }
    assert!(ends.next().is_none());
    assert_eq!(start, request.data.len());
}

fn width(element: Element) -> u64 {
    match element {
        Element::Fp64 | Element::Int64 | Element::Uint64 => 8,
        Element::Fp32 | Element::Int32 | Element::Uint32 => 4,
        Element::Int16 | Element::Uint16 => 2,
        Element::Int8 | Element::Uint8 | Element::Bool => 1,
    }
}

fn elements(value: &Value) -> u64 {
    value
        .as_array()
        .map_or(1, |list| list.iter().map(elements).sum())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_passes_whatever_byte_of_it_is_another() {
        for file in std::fs::read_dir("corpus/inference").expect("in native/fuzz") {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            super::requests(&bytes);
            for place in 0..bytes.len() {
                let mut other = bytes.clone();
                for byte in b"\0\x1f \"\\,:[]{}0-.eu\xff" {
                    other[place] = *byte;
                    super::requests(&other);
                }
                super::requests(&bytes[..place]);
            }
        }
    }
    #[test]
    fn numbers_beyond_any_float_are_left_for_python_to_judge() {
        super::requests(br#"{"parameters":{"a":-1e999},"inputs":[]}"#);
    }
}
