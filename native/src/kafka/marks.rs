//! Marks: which messages are still on their way.
//!
//! The messages of one `write` share a mark, and each carries it, with its row, in the place of the pointer that
//! librdkafka keeps for a message. So it is known, of each block by itself, when the last of its messages is on the
//! brokers or lost, and which were lost.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use super::library::{Code, Message, OK};
use super::plugin::lock;

/// Marks that can be in use at a time: more than librdkafka's queue has messages, as it is set by default.
const PLACES: usize = 1 << 17;
const LOW: u64 = u32::MAX as u64;
/// Marks have 31 bits, and none is 0. A message has room for one and its row where pointers have 64 bits.
const LAST: u32 = u32::MAX >> 1;
const _: () = assert!(usize::BITS == 64);
/// Tells what a message of ours carries from a pointer of somebody else's: none of a process has this bit.
const OURS: u64 = 1 << 63;

/// Why a message was lost, the mark it went by, and its row.
pub type Failure = (Code, u32, u32);

/// The marks of one producer.
pub struct Marks {
    /// For the mark at a place: how many messages went by it (upper half), and how many still do (lower half).
    places: Box<[AtomicU64]>,
    next: AtomicU32,
    outstanding: AtomicI64,
    finished: Mutex<Vec<u32>>,
    failures: Mutex<Vec<Failure>>,
}

impl Marks {
    /// Of a producer, or of a client that sends nothing.
    pub fn new(producer: bool) -> Marks {
        let count = if producer { PLACES } else { 0 };
        Marks {
            places: (0..count).map(|_| AtomicU64::new(0)).collect(),
            next: AtomicU32::new(1),
            outstanding: AtomicI64::new(0),
            finished: Mutex::default(),
            failures: Mutex::default(),
        }
    }

    /// A mark for so many messages, which are outstanding from now on; `None` while all are in use. One at a time.
    pub fn begin(&self, count: u32) -> Option<u32> {
        let mark = self.next.load(Ordering::Relaxed);
        let place = self.place(mark);
        if count == 0 || place.load(Ordering::Acquire) != 0 {
            return None;
        }
        let next = if mark == LAST { 1 } else { mark + 1 };
        self.next.store(next, Ordering::Relaxed);
        self.outstanding
            .fetch_add(i64::from(count), Ordering::AcqRel);
        place.store(u64::from(count) << 32 | u64::from(count), Ordering::Release);
        Some(mark)
    }

    /// So many messages were not handed over, after all.
    pub fn not_taken(&self, mark: u32, count: u32) {
        if count == 0 {
            return;
        }
        let count = u64::from(count);
        let before = self
            .place(mark)
            .fetch_sub(count << 32 | count, Ordering::AcqRel);
        self.outstanding.fetch_sub(count as i64, Ordering::AcqRel);
        if before & LOW == count {
            self.finish(mark, (before >> 32) - count);
        }
    }

    /// The message is on the brokers, or lost.
    pub fn acknowledged(&self, message: &mut Message) {
        let Some((mark, row)) = read(message.private) else {
            return;
        };
        // confluent-kafka may be told of it next, and would take what it finds there for a pointer of its own.
        message.private = null_mut();
        if message.err != OK {
            lock(&self.failures).push((message.err, mark, row));
        }
        // After the failure: who sees that a mark is finished sees all its failures.
        let before = self.place(mark).fetch_sub(1, Ordering::AcqRel);
        if before & LOW == 1 {
            self.finish(mark, before >> 32);
        }
    }

    fn finish(&self, mark: u32, count: u64) {
        if count > 0 {
            lock(&self.finished).push(mark);
        }
        self.place(mark).store(0, Ordering::Release);
        self.outstanding.fetch_sub(count as i64, Ordering::AcqRel);
    }

    /// How many messages there are by marks that are not finished.
    pub fn outstanding(&self) -> i64 {
        self.outstanding.load(Ordering::Acquire)
    }

    /// Takes the marks that are finished, and the failures, of those all and of others some.
    pub fn finished(&self) -> (Vec<u32>, Vec<Failure>) {
        let finished = std::mem::take(&mut *lock(&self.finished));
        (finished, std::mem::take(&mut *lock(&self.failures)))
    }

    fn place(&self, mark: u32) -> &AtomicU64 {
        &self.places[mark as usize % PLACES]
    }
}

/// What a message carries. It points to nothing.
pub fn written(mark: u32, row: u32) -> *mut c_void {
    (OURS | u64::from(mark) << 32 | u64::from(row)) as usize as *mut c_void
}

fn read(private: *mut c_void) -> Option<(u32, u32)> {
    let both = private as usize as u64;
    (both & OURS != 0).then_some(((both >> 32) as u32 & LAST, both as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(err: Code, private: *mut c_void) -> Message {
        Message {
            err,
            rkt: null_mut(),
            partition: 0,
            payload: null_mut(),
            len: 0,
            key: null_mut(),
            key_len: 0,
            offset: 0,
            private,
        }
    }

    #[test]
    fn a_mark_is_finished_with_the_last_of_its_messages() {
        let marks = Marks::new(true);
        let (first, second) = (marks.begin(2).unwrap(), marks.begin(3).unwrap());
        assert_eq!(marks.outstanding(), 5);
        marks.acknowledged(&mut message(OK, written(second, 0)));
        marks.not_taken(second, 2);
        assert_eq!(marks.finished(), (vec![second], vec![]));
        assert_eq!(marks.outstanding(), 2);
        marks.acknowledged(&mut message(OK, written(first, 1)));
        assert_eq!(marks.finished(), (vec![], vec![]));
        marks.acknowledged(&mut message(OK, written(first, 0)));
        assert_eq!(marks.finished(), (vec![first], vec![]));
        assert_eq!(marks.outstanding(), 0);
    }

    #[test]
    fn a_failure_is_told_by_its_row() {
        let marks = Marks::new(true);
        let mark = marks.begin(1).unwrap();
        marks.acknowledged(&mut message(-192, written(mark, u32::MAX)));
        assert_eq!(marks.finished(), (vec![mark], vec![(-192, mark, u32::MAX)]));
    }

    #[test]
    fn what_was_told_leaves_nothing_to_follow_and_counts_once() {
        let marks = Marks::new(true);
        let mark = marks.begin(3).unwrap();
        for (row, err) in [OK, -192].into_iter().enumerate() {
            let mut told = message(err, written(mark, row as u32));
            marks.acknowledged(&mut told);
            assert!(told.private.is_null());
            marks.acknowledged(&mut told);
        }
        assert!(marks.finished().0.is_empty());
    }

    #[test]
    fn a_message_without_a_mark_is_somebody_elses() {
        let marks = Marks::new(true);
        marks.begin(1);
        let pointer = (&raw const marks).cast_mut().cast();
        for private in [null_mut(), pointer] {
            let mut other = message(-192, private);
            marks.acknowledged(&mut other);
            assert_eq!(other.private, private);
        }
        assert_eq!(marks.outstanding(), 1);
        assert_eq!(marks.finished(), (vec![], vec![]));
    }

    #[test]
    fn there_is_no_mark_while_all_are_in_use_and_none_is_zero() {
        let marks = Marks::new(true);
        marks.next.store(LAST, Ordering::Relaxed);
        assert_eq!((marks.begin(1), marks.begin(1)), (Some(LAST), Some(1)));
        for _ in 2..PLACES - 1 {
            marks.begin(1).unwrap();
        }
        assert_eq!(marks.begin(1), None);
        marks.not_taken(LAST, 1);
        assert_eq!(marks.finished(), (vec![], vec![]));
        assert_eq!(marks.begin(1), Some(PLACES as u32 - 1));
    }
}
