//! Messages into bytes.

/// The largest remaining length of a packet.
const MOST: usize = 268_435_455;

/// One message. `topic` and `properties` are as they travel, lengths in front.
#[derive(Clone, Copy)]
pub struct Message<'a> {
    pub flags: u8,
    pub topic: &'a [u8],
    pub packet_id: u16,
    pub properties: &'a [u8],
    pub payload: &'a [u8],
}

impl Message<'_> {
    fn numbered(&self) -> bool {
        self.flags & 6 != 0
    }

    fn body(&self) -> usize {
        let numbered = if self.numbered() { 2 } else { 0 };
        self.topic.len() + numbered + self.properties.len() + self.payload.len()
    }

    /// Whether MQTT has such a message: QoS, DUP, packet identifier and size. Its topic is not looked at.
    pub fn is_right(&self) -> bool {
        let qos = self.flags >> 1 & 3;
        self.flags < 16
            && qos < 3
            && (qos > 0 || self.flags & 8 == 0)
            && (qos == 0 || self.packet_id > 0)
            && self.body() <= MOST
    }

    /// Bytes of the packet.
    pub fn size(&self) -> usize {
        let body = self.body();
        1 + written(body) + body
    }

    /// Writes the packet; returns the rest of `out`.
    pub fn write<'o>(&self, out: &'o mut [u8]) -> &'o mut [u8] {
        let mut length = self.body();
        let mut header = [0x30 | self.flags; 5];
        let mut size = 1;
        loop {
            header[size] = (length & 0x7F) as u8;
            length >>= 7;
            if length == 0 {
                break;
            }
            header[size] |= 0x80;
            size += 1;
        }
        let out = put(out, &header[..=size]);
        let mut out = put(out, self.topic);
        if self.numbered() {
            out = put(out, &self.packet_id.to_be_bytes());
        }
        put(put(out, self.properties), self.payload)
    }
}

fn put<'o>(out: &'o mut [u8], bytes: &[u8]) -> &'o mut [u8] {
    let (place, rest) = out.split_at_mut(bytes.len());
    place.copy_from_slice(bytes);
    rest
}

/// Bytes of a variable byte integer.
fn written(value: usize) -> usize {
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::Packet;
    use super::*;

    #[test]
    fn a_message_is_written_as_long_as_it_says() {
        for size in [
            0, 1, 120, 121, 122, 123, 124, 16_376, 16_377, 16_380, 2_097_145, 2_097_150,
        ] {
            let payload = vec![7; size];
            let message = Message {
                flags: 2,
                topic: b"\0\x01a",
                packet_id: 1,
                properties: b"\0",
                payload: &payload,
            };
            assert!(message.is_right());
            let mut out = vec![0; message.size()];
            assert!(message.write(&mut out).is_empty());
            let packet = Packet::first_of(&out, usize::MAX).expect("whole");
            assert_eq!((packet.size(), packet.body.len()), (out.len(), size + 6));
        }
    }

    #[test]
    fn what_mqtt_has_not_is_seen() {
        let message = |flags, packet_id| Message {
            flags,
            topic: b"\0\x01a",
            packet_id,
            properties: b"",
            payload: b"",
        };
        for (flags, packet_id) in [(6, 1), (8, 0), (2, 0), (16, 1)] {
            assert!(!message(flags, packet_id).is_right());
        }
        assert!(message(0, 0).is_right() && message(13, 1).is_right());
    }
}
