//! Acknowledgements, PUBACK to PUBCOMP, in bulk.

use super::packet::{Packet, short};

/// An acknowledgement with or without a reason code, and without properties.
#[derive(Clone, Copy)]
pub struct Ack {
    pub packet_id: u16,
    /// The type of the packet, 4 to 7.
    pub kind: u8,
    pub reason: u8,
}

/// The acknowledgements that `bytes[start..]` begins with, up to `most`, and where the first other packet begins.
pub fn scan(bytes: &[u8], start: usize, five: bool, most: usize) -> (Vec<Ack>, usize) {
    let (mut found, mut end) = (Vec::new(), start);
    while found.len() < most {
        let Some(packet) = bytes
            .get(end..)
            .and_then(|rest| Packet::first_of(rest, usize::MAX))
        else {
            break;
        };
        let Some(ack) = acknowledgement(&packet, five) else {
            break;
        };
        found.push(ack);
        end += packet.size();
    }
    (found, end)
}

fn acknowledgement(packet: &Packet<'_>, five: bool) -> Option<Ack> {
    let kind = packet.first >> 4;
    let flags = if kind == 6 { 2 } else { 0 };
    if !(4..8).contains(&kind) || packet.first & 0xF != flags {
        return None;
    }
    let reason = match (packet.body.len(), five) {
        (2, _) => 0,
        (3, true) => packet.body[2],
        (4, true) if packet.body[3] == 0 => packet.body[2],
        _ => return None,
    };
    let taken = kind < 6 && reason == 0x10;
    let packet_id = short(packet.body).filter(|number| *number > 0)?;
    (reason == 0 || taken || is_failure(reason)).then_some(Ack {
        packet_id,
        kind,
        reason,
    })
}

/// Whether MQTT 5 has a failure of this code.
fn is_failure(reason: u8) -> bool {
    (0x80..=0xA2).contains(&reason)
}

/// Bytes of columns of so many acknowledgements.
pub fn size(rows: usize) -> usize {
    rows * 4
}

/// Columns one behind the other: uint16 packet identifiers, uint8 kinds, uint8 reason codes.
pub fn fill(out: &mut [u8], found: &[Ack]) {
    let (ids, rest) = out.split_at_mut(found.len() * 2);
    let (kinds, reasons) = rest.split_at_mut(found.len());
    for (place, ack) in found.iter().enumerate() {
        ids[place * 2..place * 2 + 2].copy_from_slice(&ack.packet_id.to_ne_bytes());
        kinds[place] = ack.kind;
        reasons[place] = ack.reason;
    }
}

/// An acknowledgement for each of these identifiers, whose first byte is `first`; `out` is four times as long.
pub fn write(out: &mut [u8], first: u8, ids: &[u16]) {
    for (place, number) in out.chunks_exact_mut(4).zip(ids) {
        let [high, low] = number.to_be_bytes();
        place.copy_from_slice(&[first, 2, high, low]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_up_to_the_first_other_packet() {
        let bytes = b"\x40\x02\0\x01\x50\x03\0\x02\x10\x62\x02\0\x03\x70\x04\0\x04\x92\0\xd0\0";
        let (found, end) = scan(bytes, 0, true, 9);
        let seen: Vec<_> = found
            .iter()
            .map(|ack| (ack.kind, ack.packet_id, ack.reason))
            .collect();
        assert_eq!(seen, [(4, 1, 0), (5, 2, 0x10), (6, 3, 0), (7, 4, 0x92)]);
        assert_eq!(end, bytes.len() - 2);
        assert_eq!(scan(bytes, 0, false, 9).1, 4);
        assert_eq!(scan(bytes, 0, true, 1).1, 4);
        let mut out = vec![0; size(found.len())];
        fill(&mut out, &found);
    }

    #[test]
    fn what_is_wrong_is_left_alone() {
        for wrong in [
            &b"\x41\x02\0\x01"[..],
            b"\x60\x02\0\x01",
            b"\x40\x02\0\0",
            b"\x40\x03\0\x01\x01",
            b"\x40\x03\0\x01\xFF",
            b"\x62\x03\0\x01\x10",
            b"\x40\x01\0",
            b"\x40\x02\0",
        ] {
            assert_eq!(scan(wrong, 0, true, 9).1, 0, "{wrong:?}");
        }
    }

    #[test]
    fn identifiers_are_written_big_endian() {
        let mut out = [0; 8];
        write(&mut out, 0x40, &[1, 0x1234]);
        assert_eq!(out, *b"\x40\x02\0\x01\x40\x02\x12\x34");
    }
}
