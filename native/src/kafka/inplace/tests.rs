//! Records in memory of our own, whole and broken, read in place and as librdkafka reads them.

use std::ptr::null_mut;

use super::*;

type Told = Vec<(Vec<u8>, Option<Vec<u8>>)>;

fn listed(found: &Received) -> Told {
    let string = |at: i64, size: i64| found.bytes[at as usize..][..size as usize].to_vec();
    let both = |[name, long, value, size]: &[i64; 4]| {
        let value = (*size != -1).then(|| string(*value, *size));
        (string(*name, *long), value)
    };
    found.places.iter().map(both).collect()
}

fn told(bytes: &[u8]) -> Option<Told> {
    let mut found = Received::default();
    whole(bytes, &mut found)?;
    Some(listed(&found))
}

#[test]
fn headers_are_told_with_their_values_and_without() {
    assert_eq!(told(b"\x00rest"), Some(vec![]));
    assert_eq!(
        told(b"\x06\x02a\x04bc\x00\x01\x02d\x00rest"),
        Some(vec![
            (b"a".to_vec(), Some(b"bc".to_vec())),
            (b"".to_vec(), None),
            (b"d".to_vec(), Some(b"".to_vec())),
        ])
    );
}

#[cfg(unix)]
#[test]
fn a_page_between_two_records_is_not_read() {
    const PAGE: usize = 4096;
    // Safety: three pages of our own, of which nobody may read the second.
    let start = unsafe {
        let all = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let start = libc::mmap(null_mut(), 3 * PAGE, all, kind, -1, 0);
        assert_ne!(start, libc::MAP_FAILED);
        assert_eq!(libc::mprotect(start.add(PAGE), PAGE, libc::PROT_NONE), 0);
        start.cast::<u8>()
    };
    let record = |offset, at: usize| Message {
        err: 0,
        rkt: null_mut(),
        partition: 0,
        payload: start.wrapping_add(at).cast(),
        len: 1,
        key: null_mut(),
        key_len: 0,
        offset,
        private: null_mut(),
    };
    let (last, next) = (record(0, PAGE - 1), record(1, 2 * PAGE));
    // Safety: both records lie in pages that can be read.
    assert_eq!(unsafe { behind(&last, &next) }, None);
    // Safety: it is ours.
    unsafe { libc::munmap(start.cast(), 3 * PAGE) };
}

#[test]
fn behind_an_empty_value_nothing_is_looked_for_even_if_something_lies_there() {
    // librdkafka's constant for what is empty, and a record that happens to lie behind it.
    let bytes = *b"\0\0\0\0value";
    let mut empty = message(0, None, Some(b""));
    empty.payload = bytes.as_ptr().cast_mut().cast();
    let next = message(1, None, Some(&bytes[4..]));
    // Safety: all lies in these bytes.
    assert_eq!(unsafe { behind(&empty, &next) }, None);
}

fn number(number: usize) -> Vec<u8> {
    let mut rest = 2 * number;
    let mut bytes = Vec::new();
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes
}

fn record(key: Option<&[u8]>, value: &[u8], headers: &[u8]) -> Vec<u8> {
    let key = key.map_or(vec![1], |key| [number(key.len()), key.to_vec()].concat());
    let value = [number(value.len()), value.to_vec()].concat();
    let body = [&b"\0\x96\x01\x02"[..], &key, &value, headers].concat();
    [number(body.len()), body].concat()
}

/// A response of batches of records.
fn response(batches: &[Vec<Vec<u8>>]) -> Vec<Vec<u8>> {
    let start = [&[7; 16][..], &[2], &[7; 40], &[0, 0, 0, 1]].concat();
    let whole = |batch: &Vec<Vec<u8>>| [start.clone(), batch.concat()].concat();
    batches.iter().map(whole).collect()
}

/// The records, with their headers, as librdkafka reads each inside of its own bounds.
fn as_librdkafka(batches: &[Vec<u8>], start: *const u8) -> Vec<(Message, Told)> {
    fn long(bytes: &[u8]) -> Option<(i64, &[u8])> {
        let size = 1 + bytes.iter().take(10).position(|byte| *byte < 0x80)?;
        let number = bytes[..size].iter().rev().fold(0u64, |number, byte| {
            number.wrapping_shl(7) | u64::from(byte & 0x7F)
        });
        Some((
            (number >> 1) as i64 ^ -((number & 1) as i64),
            &bytes[size..],
        ))
    }
    fn string(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
        let (size, rest) = long(bytes)?;
        if size as i32 == -1 {
            return Some((None, rest));
        }
        let (string, rest) = rest.split_at_checked(usize::try_from(size).ok()?)?;
        Some((Some(string), rest))
    }
    fn headers(bytes: &[u8]) -> Option<Told> {
        let (count, mut rest) = long(bytes)?;
        let mut found = Vec::new();
        for _ in 0..count {
            let (name, value);
            (name, rest) = string(rest)?;
            (value, rest) = string(rest)?;
            let name = name?.split(|byte| *byte == 0).next()?;
            found.push((name.to_vec(), value.map(<[u8]>::to_vec)));
        }
        Some(found)
    }
    let mut found = Vec::new();
    let mut read = |bytes: &[u8]| -> Option<usize> {
        let (length, body) = long(bytes)?;
        let (body, _) = body.split_at_checked(usize::try_from(length).ok()?)?;
        let rest = long(long(body.get(1..)?)?.1)?.1;
        let (key, rest) = string(rest)?;
        let (value, rest) = string(rest)?;
        let message = message(found.len() as i64, key, value);
        let size = body.as_ptr() as usize + body.len() - bytes.as_ptr() as usize;
        found.push((message, headers(rest).unwrap_or_default()));
        Some(size)
    };
    let mut at = 0;
    for batch in batches {
        // Safety: the batches lie one after the other.
        let bytes = unsafe { std::slice::from_raw_parts(start.add(at), batch.len()) };
        let mut rest = &bytes[BATCH..];
        while let Some(size) = read(rest) {
            rest = &rest[size..];
        }
        at += batch.len();
    }
    found
}

fn message(offset: i64, key: Option<&[u8]>, value: Option<&[u8]>) -> Message {
    let start = |bytes: Option<&[u8]>| match bytes {
        None => std::ptr::null(),
        // librdkafka's own.
        Some(b"") => b"".as_ptr(),
        Some(bytes) => bytes.as_ptr(),
    };
    Message {
        err: 0,
        rkt: null_mut(),
        partition: 0,
        payload: start(value).cast_mut().cast(),
        len: value.map_or(0, <[u8]>::len),
        key: start(key).cast_mut().cast(),
        key_len: key.map_or(0, <[u8]>::len),
        offset,
        private: null_mut(),
    }
}

/// How many records' headers were surely told, and were as librdkafka says; until a difference is noticed.
fn surely_told(batches: &[Vec<u8>]) -> usize {
    let bytes = batches.concat();
    let messages = as_librdkafka(batches, bytes.as_ptr());
    let mut walk = Walk { head: None };
    let mut sure = 0;
    for (row, (message, expected)) in messages.iter().enumerate() {
        let next = messages.get(row + 1).map(|(next, _)| next);
        // Safety: all lies in one response.
        let mut found = Received::default();
        found.bytes.push(7);
        let Some(lying) = (unsafe { walk.step(message, next, &mut found) }) else {
            continue;
        };
        if !lying.sure && lying.count != expected.len() {
            break;
        }
        sure += usize::from(lying.sure);
        assert_eq!(&listed(&found), expected, "record {row} of {batches:?}");
    }
    sure
}

const TWO: &[u8] = b"\x04\x02a\x04b\xff\x06two\x01";

#[test]
fn all_between_the_first_record_and_the_last_are_told_without_librdkafka() {
    let one = || record(None, b"value", TWO);
    let batch = vec![
        one(),
        record(Some(b"key"), &[b'v'; 1000], b"\0"),
        record(
            None,
            b"value",
            &[&b"\x02\x02a\xd0\x0f"[..], &[0xFF; 1000]].concat(),
        ),
        one(),
    ];
    assert_eq!(surely_told(&response(std::slice::from_ref(&batch))), 2);
    assert_eq!(
        surely_told(&response(&[batch, vec![one()], vec![one()]])),
        4
    );
    // Nothing is told behind what lies elsewhere.
    let empty = vec![
        one(),
        one(),
        record(Some(b"key"), b"", TWO),
        one(),
        one(),
        one(),
    ];
    assert_eq!(surely_told(&response(&[empty])), 2);
    // But where a key that lies elsewhere stood is known.
    let keyless = || record(Some(b""), b"value", TWO);
    let batch = vec![one(), keyless(), keyless(), one()];
    assert_eq!(surely_told(&response(&[batch])), 2);
}

#[test]
fn headers_that_reach_into_the_next_record_are_left_to_librdkafka() {
    let one = || record(None, b"value", TWO);
    let wrong: [&[u8]; 3] = [
        // Longer than the record by one byte, by two; more of them.
        b"\x04\x02a\x04b\xff\x06two\x02",
        b"\x02\x02a\x04b",
        b"\x06\x02a\x04b\xff\x06two\x01",
    ];
    for headers in wrong {
        let broken = record(None, b"value", headers);
        assert_eq!(
            surely_told(&response(&[vec![one(), one(), broken.clone(), one()]])),
            1
        );
        // As the first of all it is not sure in any case.
        surely_told(&response(&[vec![broken, one(), one(), one()]]));
    }
}

#[test]
fn whatever_is_broken_nothing_is_told_that_librdkafka_does_not_say() {
    let mut seed = 1u64;
    let mut chance = move |below: usize| {
        // An xorshift.
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed as usize % below
    };
    let mut sure = 0;
    for _ in 0..20_000 {
        let mut record = || {
            let value = [0x80, 0, 2, 9][chance(4)];
            let value = vec![value; [0, 1, 5, 60, 130][chance(5)]];
            let key = [None, Some(&b"k"[..]), Some(b"some key"), Some(b"")][chance(4)];
            let headers: [&[u8]; 5] = [
                b"\0",
                b"\0",
                TWO,
                b"\x02\x02a\x06\x80\x80\x80",
                &[0xFF; 300],
            ];
            match chance(5) {
                4 => record(key, &value, &[b"\x02\x02a\xd8\x04", headers[4]].concat()),
                kind => record(key, &value, headers[kind]),
            }
        };
        let mut batch = || (0..4).map(|_| record()).collect::<Vec<_>>();
        let mut batches = response(&[batch(), batch(), batch()]);
        for _ in 0..chance(4) {
            let batch = &mut batches[chance(3)];
            let at = chance(batch.len());
            batch[at] = [0, 1, 2, 4, 0x7F, 0x80, 0x81, chance(256) as u8][chance(8)];
        }
        sure += surely_told(&batches);
    }
    assert!(sure > 40_000, "{sure}");
}

#[test]
fn what_is_not_whole_is_left_to_librdkafka() {
    let cut: [&[u8]; 9] = [
        b"",
        b"\x01",
        b"\x02",
        b"\x02\x02",
        b"\x02\x02a",
        b"\x02\x02a\x04b",
        b"\x02\x02a\x03",
        b"\x80\x80\x80\x80\x01",
        // Its names end at a null.
        b"\x02\x06a\x00b\x01",
    ];
    for bytes in cut {
        assert_eq!(told(bytes), None, "{bytes:?}");
    }
}

#[test]
fn a_head_is_taken_for_one_only_if_it_can_be_no_other() {
    // Of 45 bytes, of which 7 before the content of 5.
    let head = b"\x5a\0\x96\x01\x02\x01\x0a";
    assert_eq!(size_by_head(head, 4, 5), Some(45 - 6 - 5));
    let wrong: [(&[u8], usize, usize); 8] = [
        (head, 3, 5),
        (head, 5, 5),
        (head, 4, 40),
        // Odd lengths are negative.
        (b"\x5b\0\x96\x01\x02\x01\x0a", 4, 5),
        (b"\x5a\x01\x96\x01\x02\x01\x0a", 4, 5),
        // Its second byte alone is length enough, so it may begin there.
        (b"\x80\x5a\0\x96\x01\x02\x01\x0a", 4, 5),
        (b"\x5a", 4, 5),
        (b"", 4, 5),
    ];
    for (bytes, numbers, content) in wrong {
        assert_eq!(size_by_head(bytes, numbers, content), None, "{bytes:?}");
    }
}

#[test]
fn the_first_record_of_a_batch_is_known_unless_its_length_may_begin_before() {
    let value = [7u8; 5];
    let message = message(1, None, Some(&value));
    let mut bytes = vec![7; BATCH];
    bytes.extend(b"\x5a\0\x96\x01\x02\x01\x0a");
    assert_eq!(size_of_headers(&bytes, &message), Some(34));
    bytes[BATCH - 1] = 0x81;
    assert_eq!(size_of_headers(&bytes, &message), None);
}
