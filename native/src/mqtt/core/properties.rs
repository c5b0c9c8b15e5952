//! The properties of a PUBLISH of MQTT 5 (section 3.3.2.3): whether they keep the rules.

use super::packet::{is_text, is_topic, string, varint};

const FORMAT: u8 = 0x01;
const EXPIRY: u8 = 0x02;
const CONTENT_TYPE: u8 = 0x03;
const RESPONSE_TOPIC: u8 = 0x08;
const CORRELATION: u8 = 0x09;
const SUBSCRIPTION: u8 = 0x0B;
const USER: u8 = 0x26;

/// Whether these are properties that a message may carry. A topic alias is left to others.
///
/// Subscription identifiers come `from_server` only.
pub fn are_plain(mut bytes: &[u8], from_server: bool) -> bool {
    let mut seen = 0u64;
    while let Some((identifier, rest)) = bytes.split_first() {
        let Some(rest) = value(*identifier, rest, from_server) else {
            return false;
        };
        let once = !matches!(*identifier, SUBSCRIPTION | USER);
        if once && seen & (1 << identifier) != 0 {
            return false;
        }
        seen |= 1 << identifier;
        bytes = rest;
    }
    true
}

/// The bytes behind the value of this property, if the value is right. Known identifiers are below 64.
fn value(identifier: u8, bytes: &[u8], from_server: bool) -> Option<&[u8]> {
    let text = |bytes| string(bytes).filter(|(text, _)| is_text(text));
    match identifier {
        FORMAT => bytes
            .split_first()
            .filter(|(flag, _)| **flag < 2)
            .map(|(_, rest)| rest),
        EXPIRY => bytes.get(4..),
        CONTENT_TYPE => text(bytes).map(|(_, rest)| rest),
        RESPONSE_TOPIC => string(bytes)
            .filter(|(topic, _)| is_topic(topic))
            .map(|(_, rest)| rest),
        CORRELATION => string(bytes).map(|(_, rest)| rest),
        SUBSCRIPTION => {
            let (number, size) = varint(bytes)?;
            (from_server && number > 0).then(|| &bytes[size..])
        }
        USER => {
            let (_, rest) = text(bytes)?;
            text(rest).map(|(_, rest)| rest)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_message_may_carry() {
        for plain in [
            &b""[..],
            b"\x01\x01\x02\0\0\0\x01\x03\0\x01a\x08\0\x01b\x09\0\x01\xFF",
            b"\x0B\x01\x0B\x80\x01\x26\0\x01a\0\0\x26\0\x01a\0\0",
        ] {
            assert!(are_plain(plain, true), "{plain:?}");
        }
        assert!(!are_plain(b"\x0B\x01", false));
    }

    #[test]
    fn what_it_may_not() {
        for wrong in [
            &b"\x01\x02"[..],
            b"\x01",
            b"\x01\0\x01\0",
            b"\x02\0\0\0",
            b"\x03\0\x02a",
            b"\x03\0\x01\xFF",
            b"\x03\0\x01\0",
            b"\x08\0\x01+",
            b"\x08\0\0",
            b"\x0B\0",
            b"\x23\0\x01",
            b"\x26\0\x01a",
            b"\x11\0\0\0\x01",
            b"\xA6\0",
        ] {
            assert!(!are_plain(wrong, true), "{wrong:?}");
        }
    }
}
