//! Messages in flight: handed over to librdkafka, and neither confirmed nor lost yet.
//!
//! librdkafka does not copy their payloads. They lie in memory of ours, a chunk for a few hundred messages, which is
//! kept until all of them are confirmed or lost. So the address of a payload says which message a delivery report is
//! about: reports are only read, and messages carry nothing else of ours.
//!
//! A message without a payload (a tombstone) has no address. Tombstones are counted: when none of them is in flight any
//! more, all are confirmed. If one of them was lost it is not known which, so all of them are said to be lost, and can
//! be sent again.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Mutex;

use super::library::{ANY_PARTITION, Code, Message, OK};
use super::outgoing::Rows;
use super::plugin::lock;

/// Messages of a chunk: so few that their descriptions stay in the processor's cache while they are handed over.
const MOST: usize = 256;
/// Payload bytes from which on a chunk takes no further message.
const MOST_BYTES: usize = 1 << 20;

/// A number for the messages of a chunk; each is used once.
pub type Mark = u64;
/// The place of a chunk.
type Slot = usize;
/// Why a message was lost, the mark it went by, and its row.
pub type Failure = (Code, Mark, u32);

/// Payloads of messages that are handed over together.
pub struct Chunk {
    // Never changed once it is filled, so that it stays where it is.
    memory: Vec<u8>,
    /// The address of each message's payload, rising. A tombstone has an address of its own as well.
    addresses: Vec<usize>,
    rows: Vec<u32>,
    /// The place of the message that is likely reported next: behind the last one.
    next: usize,
    mark: Mark,
    /// How many of its messages are in flight, how many were taken, and whether one was lost.
    left: usize,
    taken: usize,
    lost: bool,
}

impl Chunk {
    /// Of the first messages of this order, as many as belong together; and their descriptions for librdkafka.
    pub fn of(rows: &Rows<'_>, order: &[u32]) -> (Chunk, Vec<Message>) {
        let (mut count, mut size) = (0, 0);
        for &row in order.iter().take(MOST) {
            size += room(rows.size(row as usize));
            count += 1;
            if size >= MOST_BYTES {
                break;
            }
        }
        let rows_taken = &order[..count];
        let mut memory: Vec<u8> = Vec::with_capacity(size);
        let mut messages: Vec<Message> = rows_taken
            .iter()
            .map(|&row| {
                let value = rows.value(row as usize);
                let (key, key_len) = parts(rows.key(row as usize));
                let (payload, len) = parts(value);
                memory.extend_from_slice(value.filter(|value| !value.is_empty()).unwrap_or(&[0]));
                Message {
                    err: OK,
                    rkt: null_mut(),
                    partition: ANY_PARTITION,
                    payload,
                    len,
                    key,
                    key_len,
                    offset: 0,
                    private: null_mut(),
                }
            })
            .collect();
        let mut payload = memory.as_ptr();
        let addresses = messages
            .iter_mut()
            .map(|message| {
                let start = payload;
                // Inside the memory, or its end.
                payload = payload.wrapping_add(room(message.len));
                if !message.payload.is_null() {
                    message.payload = start.cast_mut().cast();
                }
                start as usize
            })
            .collect();
        let chunk = Chunk {
            memory,
            addresses,
            rows: rows_taken.to_vec(),
            next: 0,
            mark: 0,
            left: rows_taken.len(),
            taken: rows_taken.len(),
            lost: false,
        };
        (chunk, messages)
    }

    fn start(&self) -> usize {
        self.memory.as_ptr() as usize
    }

    fn has(&self, address: usize) -> bool {
        address.wrapping_sub(self.start()) < self.memory.len()
    }

    /// The row of the message whose payload begins here; none if it is no message of this chunk.
    fn row(&mut self, address: usize) -> Option<u32> {
        let at = match self.addresses.get(self.next) {
            Some(&next) if next == address => self.next,
            _ => self.addresses.binary_search(&address).ok()?,
        };
        self.next = at + 1;
        Some(self.rows[at])
    }
}

/// The messages in flight of one producer.
#[derive(Default)]
pub struct InFlight {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Each in a slot of its own.
    chunks: Vec<Option<Chunk>>,
    free: Vec<Slot>,
    /// By where their memory begins.
    by_start: BTreeMap<usize, Slot>,
    /// That of the message reported last: the next is likely there, too.
    recent: Slot,
    last: Mark,
    outstanding: usize,
    tombstones: Tombstones,
    finished: Vec<Mark>,
    failures: Vec<Failure>,
    /// Payloads of chunks of which a message was lost: the client's callback is still to be told of it.
    unreported: Vec<Vec<u8>>,
}

#[derive(Default)]
struct Tombstones {
    in_flight: usize,
    /// Chunk and row of all since there was none in flight.
    sent: Vec<(Slot, u32)>,
    failure: Option<Code>,
}

impl InFlight {
    /// The messages of this chunk are about to be handed over: from now on they are in flight. Gives the slot of
    /// the chunk, for `not_taken`, and the mark of its messages.
    pub fn begin(&self, mut chunk: Chunk, messages: &[Message]) -> (Slot, Mark) {
        let mut state = lock(&self.state);
        state.last += 1;
        chunk.mark = state.last;
        state.outstanding += chunk.left;
        let slot = state.free.pop().unwrap_or(state.chunks.len());
        for (message, &row) in messages.iter().zip(&chunk.rows) {
            if message.payload.is_null() {
                state.tombstones.in_flight += 1;
                state.tombstones.sent.push((slot, row));
            }
        }
        let mark = chunk.mark;
        state.by_start.insert(chunk.start(), slot);
        match state.chunks.get_mut(slot) {
            Some(place) => *place = Some(chunk),
            None => state.chunks.push(Some(chunk)),
        }
        (slot, mark)
    }

    /// These messages of the chunk were not handed over, after all: a row, and whether it is a tombstone.
    pub fn not_taken(&self, slot: Slot, messages: impl Iterator<Item = (u32, bool)>) {
        let mut state = lock(&self.state);
        for (row, tombstone) in messages {
            if tombstone {
                state.tombstones.sent.retain(|sent| *sent != (slot, row));
                state.tombstones.in_flight -= 1;
            }
            if let Some(chunk) = state.chunks[slot].as_mut() {
                chunk.taken -= 1;
            }
            state.done(slot, None);
        }
        state.settle_tombstones();
    }

    /// librdkafka says: the message is on the brokers, or lost.
    pub fn acknowledged(&self, message: &Message) {
        let failure = (message.err != OK).then_some(message.err);
        let mut state = lock(&self.state);
        if message.payload.is_null() {
            // Only this writer sends messages by this producer.
            state.tombstones.in_flight = state.tombstones.in_flight.saturating_sub(1);
            state.tombstones.failure = failure.or(state.tombstones.failure);
            state.settle_tombstones();
            return;
        }
        let address = message.payload as usize;
        let Some(slot) = state.slot(address) else {
            return;
        };
        let row = state.chunks[slot]
            .as_mut()
            .and_then(|chunk| chunk.row(address));
        if let Some(row) = row {
            state.done(slot, failure.map(|code| (code, row)));
        }
    }

    /// How many messages are in flight.
    pub fn outstanding(&self) -> usize {
        lock(&self.state).outstanding
    }

    /// Takes the marks whose messages are all confirmed or lost, and the failures: of those all and of others some.
    /// `reported` says whether the client's callbacks were told of all messages that failed before.
    pub fn finished(&self, reported: impl FnOnce() -> bool) -> (Vec<Mark>, Vec<Failure>) {
        let mut state = lock(&self.state);
        let found = (
            std::mem::take(&mut state.finished),
            std::mem::take(&mut state.failures),
        );
        let unreported = std::mem::take(&mut state.unreported);
        // librdkafka is not called under a lock that its threads wait for.
        drop(state);
        if !unreported.is_empty() && !reported() {
            lock(&self.state).unreported.extend(unreported);
        }
        found
    }
}

impl State {
    /// The slot of the chunk that this address lies in.
    fn slot(&mut self, address: usize) -> Option<Slot> {
        let has = |chunk: &Option<Chunk>| chunk.as_ref().is_some_and(|chunk| chunk.has(address));
        if !self.chunks.get(self.recent).is_some_and(has) {
            let (_, &slot) = self.by_start.range(..=address).next_back()?;
            if !has(&self.chunks[slot]) {
                return None;
            }
            self.recent = slot;
        }
        Some(self.recent)
    }

    /// A message of this chunk is not in flight any more; its failure and row, if it was lost.
    #[inline]
    fn done(&mut self, slot: Slot, failure: Option<(Code, u32)>) {
        let Some(chunk) = self.chunks[slot].as_mut() else {
            return;
        };
        chunk.left -= 1;
        self.outstanding -= 1;
        if let Some((code, row)) = failure {
            chunk.lost = true;
            self.failures.push((code, chunk.mark, row));
        }
        if chunk.left == 0 {
            self.finish(slot);
        }
    }

    fn finish(&mut self, slot: Slot) {
        if let Some(chunk) = self.chunks[slot].take() {
            self.by_start.remove(&chunk.start());
            self.free.push(slot);
            if chunk.taken > 0 {
                self.finished.push(chunk.mark);
            }
            if chunk.lost {
                self.unreported.push(chunk.memory);
            }
        }
    }

    fn settle_tombstones(&mut self) {
        if self.tombstones.in_flight > 0 {
            return;
        }
        let Tombstones { sent, failure, .. } = std::mem::take(&mut self.tombstones);
        for (slot, row) in sent {
            self.done(slot, failure.map(|code| (code, row)));
        }
    }
}

/// Bytes that a payload takes in memory: an empty one has an address of its own, too.
fn room(len: usize) -> usize {
    len.max(1)
}

/// Start and size; null for none. An empty string has a start, which is not read.
fn parts(bytes: Option<&[u8]>) -> (*mut c_void, usize) {
    bytes.map_or((null_mut(), 0), |bytes| {
        (bytes.as_ptr().cast_mut().cast(), bytes.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::outgoing::Sample;

    const TIMED_OUT: Code = -192;

    fn report(err: Code, payload: *mut c_void) -> Message {
        Message {
            err,
            rkt: null_mut(),
            partition: 0,
            payload,
            len: 0,
            key: null_mut(),
            key_len: 0,
            offset: 0,
            private: null_mut(),
        }
    }

    /// These payloads in flight, as rows 10, 11, ...; their addresses, the chunk and its mark.
    fn sent(flying: &InFlight, payloads: &[Option<&[u8]>]) -> (Vec<*mut c_void>, usize, Mark) {
        let rows = Sample::of(payloads, 10);
        let order: Vec<u32> = (10..10 + payloads.len() as u32).collect();
        let (chunk, messages) = Chunk::of(&rows.rows(), &order);
        assert_eq!(messages.len(), payloads.len());
        let (name, mark) = flying.begin(chunk, &messages);
        let addresses = messages.iter().map(|message| message.payload).collect();
        (addresses, name, mark)
    }

    #[test]
    fn a_mark_is_finished_with_the_last_of_its_messages() {
        let flying = InFlight::default();
        let (first, _, one) = sent(&flying, &[Some(b"a"), Some(b"")]);
        let (second, _, two) = sent(&flying, &[Some(b""), Some(b"a"), Some(b"a")]);
        assert_eq!(flying.outstanding(), 5);
        for address in [second[2], first[1], second[0]] {
            flying.acknowledged(&report(OK, address));
        }
        assert_eq!(flying.finished(|| true), (vec![], vec![]));
        flying.acknowledged(&report(OK, second[1]));
        assert_eq!(flying.finished(|| true), (vec![two], vec![]));
        assert_eq!(flying.outstanding(), 1);
        flying.acknowledged(&report(OK, first[0]));
        assert_eq!(flying.finished(|| true), (vec![one], vec![]));
        assert_eq!(flying.outstanding(), 0);
    }

    #[test]
    fn payloads_are_copied_and_stay_until_their_loss_was_reported() {
        let flying = InFlight::default();
        let (addresses, _, mark) = sent(&flying, &[Some(b"first"), Some(b"second")]);
        flying.acknowledged(&report(OK, addresses[0]));
        flying.acknowledged(&report(TIMED_OUT, addresses[1]));
        assert_eq!(
            flying.finished(|| false),
            (vec![mark], vec![(TIMED_OUT, mark, 11)])
        );
        // Safety: a failed message is kept until it was reported.
        let bytes = unsafe { std::slice::from_raw_parts(addresses[1].cast::<u8>(), 6) };
        assert_eq!(bytes, b"second");
        assert_eq!(flying.finished(|| true), (vec![], vec![]));
        assert!(lock(&flying.state).unreported.is_empty());
    }

    #[test]
    fn what_was_not_taken_is_not_in_flight() {
        let flying = InFlight::default();
        let (addresses, chunk, mark) = sent(&flying, &[Some(b"a"), None, Some(b"c")]);
        flying.not_taken(chunk, [(11, true), (12, false)].into_iter());
        assert_eq!(flying.outstanding(), 1);
        flying.acknowledged(&report(OK, addresses[0]));
        assert_eq!(flying.finished(|| true), (vec![mark], vec![]));
        let (_, chunk, _) = sent(&flying, &[Some(b"a"), None]);
        flying.not_taken(chunk, [(10, false), (11, true)].into_iter());
        assert_eq!(flying.finished(|| true), (vec![], vec![]));
        assert!(lock(&flying.state).by_start.is_empty());
    }

    #[test]
    fn tombstones_are_confirmed_when_none_is_in_flight() {
        let flying = InFlight::default();
        let (_, _, one) = sent(&flying, &[None, None]);
        let (addresses, _, two) = sent(&flying, &[None, Some(b"")]);
        flying.acknowledged(&report(OK, null_mut()));
        flying.acknowledged(&report(OK, addresses[1]));
        flying.acknowledged(&report(OK, null_mut()));
        assert_eq!(flying.finished(|| true), (vec![], vec![]));
        flying.acknowledged(&report(OK, null_mut()));
        assert_eq!(flying.finished(|| true), (vec![one, two], vec![]));
    }

    #[test]
    fn of_tombstones_that_were_in_flight_with_a_lost_one_all_are_lost() {
        let flying = InFlight::default();
        let (_, _, mark) = sent(&flying, &[None, Some(b"a"), None]);
        flying.acknowledged(&report(TIMED_OUT, null_mut()));
        flying.acknowledged(&report(OK, null_mut()));
        let failures = vec![(TIMED_OUT, mark, 10), (TIMED_OUT, mark, 12)];
        assert_eq!(flying.finished(|| true), (vec![], failures));
        // The next are not blamed for it.
        let (_, _, next) = sent(&flying, &[None]);
        flying.acknowledged(&report(OK, null_mut()));
        assert_eq!(flying.finished(|| true), (vec![next], vec![]));
    }

    #[test]
    fn a_message_with_another_payload_is_somebody_elses() {
        let flying = InFlight::default();
        let (addresses, ..) = sent(&flying, &[Some(b"abc")]);
        let inside = addresses[0].wrapping_byte_add(1);
        let other = (&raw const flying).cast_mut().cast();
        for payload in [inside, other, std::ptr::dangling_mut()] {
            flying.acknowledged(&report(TIMED_OUT, payload));
        }
        assert_eq!(flying.outstanding(), 1);
        assert_eq!(flying.finished(|| true), (vec![], vec![]));
    }

    #[test]
    fn a_chunk_is_of_some_hundred_messages_or_about_a_mebibyte() {
        let many = Sample::of(&[Some(b"x".as_slice()); 1000], 0);
        let order: Vec<u32> = (0..1000).collect();
        assert_eq!(Chunk::of(&many.rows(), &order).1.len(), MOST);
        let large = vec![0; MOST_BYTES / 2];
        let few = Sample::of(&[Some(large.as_slice()); 5], 0);
        assert_eq!(Chunk::of(&few.rows(), &order[..5]).1.len(), 2);
    }
}
