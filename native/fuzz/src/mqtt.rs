//! What must hold of any bytes that come over a connection of MQTT, and that another codec reads them in the same way.

#[path = "../../src/mqtt/core/mod.rs"]
pub mod core;

use std::sync::Arc;

use mqtt_protocol_core::mqtt::packet::{v3_1_1, v5_0};

use self::core::packet::Packet;
use self::core::publish::Message;
use self::core::scan::{self, Row, Scanner, Topics};

/// Scans these bytes, whole and in parts, and writes again what was found.
pub fn connection(bytes: &[u8]) {
    for five in [false, true] {
        for from_server in [false, true] {
            messages(bytes, five, from_server);
        }
        let (acks, end) = core::acks::scan(bytes, 0, five, usize::MAX);
        assert!(end <= bytes.len() && acks.iter().all(|ack| ack.packet_id > 0));
        let mut out = vec![0; core::acks::size(acks.len())];
        core::acks::fill(&mut out, &acks);
    }
}

fn scanner(five: bool, from_server: bool) -> Scanner {
    Scanner {
        five,
        largest: 1 << 20,
        from_server,
        topics: Topics::new(100, 1000),
    }
}

fn messages(bytes: &[u8], five: bool, from_server: bool) {
    let mut rows = Vec::new();
    let mut whole = scanner(five, from_server);
    let found = whole.scan(bytes, 0, usize::MAX, &mut rows);
    let names: Vec<Vec<u8>> = found.names.iter().map(|name| name.to_vec()).collect();
    let end = found.end;
    let mut out = vec![0; scan::size(rows.len())];
    scan::fill(&mut out, &rows);

    let mut at = 0;
    for row in &rows {
        let packet = Packet::first_of(&bytes[at..], usize::MAX).expect("it was taken");
        let topic = &names[row.code as usize];
        another_codec_agrees(&packet, row, topic, bytes, five);
        let again = written(row, topic, bytes, five);
        assert_eq!(again, bytes[at..at + packet.size()]);
        at += packet.size();
    }
    assert_eq!(at, end);

    // One after the other they are what they are together.
    let mut single = scanner(five, from_server);
    let (mut at, mut one) = (0, Vec::new());
    for row in &rows {
        at = single.scan(bytes, at, 1, &mut one).end;
        assert_eq!((one[0].payload, one[0].code), (row.payload, row.code));
    }
    assert_eq!(at, end);
}

fn written(row: &Row, topic: &[u8], bytes: &[u8], five: bool) -> Vec<u8> {
    let mut name = (topic.len() as u16).to_be_bytes().to_vec();
    name.extend_from_slice(topic);
    let (start, length) = row.properties;
    // The length in front of properties is written in as few bytes as can be, else they were not taken.
    let written = if length < 0x80 {
        1
    } else {
        2 + usize::from(length >= 0x4000)
    };
    let properties = if five {
        &bytes[start - written..start + length]
    } else {
        &[][..]
    };
    let message = Message {
        flags: row.flags,
        topic: &name,
        packet_id: row.packet_id,
        properties,
        payload: &bytes[row.payload.0..][..row.payload.1],
    };
    assert!(message.is_right());
    let mut out = vec![0; message.size()];
    assert!(message.write(&mut out).is_empty());
    out
}

fn another_codec_agrees(packet: &Packet<'_>, row: &Row, topic: &[u8], bytes: &[u8], five: bool) {
    let body: Arc<[u8]> = packet.body.into();
    let payload = &bytes[row.payload.0..][..row.payload.1];
    let (name, id, theirs) = if five {
        let (found, _) = v5_0::Publish::parse(row.flags, body).expect("a message of MQTT 5");
        (
            found.topic_name().to_owned(),
            found.packet_id(),
            found.payload().as_slice().to_vec(),
        )
    } else {
        let (found, _) = v3_1_1::Publish::parse(row.flags, body).expect("a message of MQTT 3.1.1");
        (
            found.topic_name().to_owned(),
            found.packet_id(),
            found.payload().as_slice().to_vec(),
        )
    };
    assert_eq!(name.as_bytes(), topic);
    assert_eq!(id.unwrap_or(0), row.packet_id);
    assert_eq!(theirs, payload);
}

#[cfg(test)]
mod tests {
    /// A generator of numbers that are the same in every run.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, most: usize) -> usize {
            self.0 = self
                .0
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            ((self.0 >> 33) as usize) % most
        }
    }

    #[test]
    fn the_corpus_passes() {
        for file in std::fs::read_dir("corpus/mqtt").expect("in native/fuzz") {
            super::connection(&std::fs::read(file.unwrap().path()).unwrap());
        }
    }

    #[test]
    fn changed_messages_pass() {
        let mut numbers = Numbers(12);
        let seeds: Vec<Vec<u8>> = std::fs::read_dir("corpus/mqtt")
            .expect("in native/fuzz")
            .map(|file| std::fs::read(file.unwrap().path()).unwrap())
            .collect();
        for _ in 0..200_000 {
            let mut bytes = seeds[numbers.below(seeds.len())].clone();
            for _ in 0..numbers.below(4) {
                let place = numbers.below(bytes.len());
                bytes[place] = numbers.below(256) as u8;
            }
            super::connection(&bytes);
        }
    }
}
