//! One client of confluent-kafka's: its handle while it lives, and the reports of interceptors about it.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard};

use super::inflight::{Chunk, InFlight, Mark};
use super::library::{Library, Message, OK, Rk};
use super::plugin::lock;
use super::reader::Reading;

thread_local! {
    static WRITING: Cell<bool> = const { Cell::new(false) };
}

pub struct Client {
    pub library: &'static Library,
    kind: i32,
    handle: Mutex<Option<Open>>,
    /// Of the messages that this library hands over.
    pub in_flight: InFlight,
}

/// The handle of a client that has not been destroyed; as long as it is held, the client is not destroyed.
pub struct Open {
    pub rk: Rk,
    pub reading: Option<Reading>,
}

// Safety: librdkafka's handles may be used by any thread; all use is under the client's lock.
unsafe impl Send for Open {}

impl Client {
    pub fn new(library: &'static Library, rk: Rk) -> Client {
        // Safety: librdkafka has only just made it.
        let kind = unsafe { (library.r#type)(rk) };
        Client {
            library,
            kind,
            handle: Mutex::new(Some(Open { rk, reading: None })),
            in_flight: InFlight::default(),
        }
    }

    pub fn kind(&self) -> i32 {
        self.kind
    }

    /// The client, held open; `None` in it once it was closed. Whoever holds it must not wait for Python's lock.
    pub fn open(&self) -> MutexGuard<'_, Option<Open>> {
        lock(&self.handle)
    }

    /// It is about to be destroyed: give back everything that would make that wait for ever.
    pub fn release(&self) {
        if let Some(reading) = self.open().take().and_then(|open| open.reading) {
            reading.release(self.library);
        }
    }

    /// It is destroyed: nothing of it may be touched.
    pub fn gone(&self) {
        if let Some(reading) = self.open().take().and_then(|open| open.reading) {
            std::mem::forget(reading);
        }
    }

    /// Hands the messages of this chunk over in this thread. `produce` sets the outcome in each. Returns the mark of
    /// those that were taken, if there are any.
    pub fn hand_over(
        &self,
        chunk: Chunk,
        messages: &mut [Message],
        rows: &[u32],
        produce: impl FnOnce(&mut [Message]),
    ) -> Option<Mark> {
        let (chunk, mark) = self.in_flight.begin(chunk, messages);
        WRITING.set(true);
        produce(messages);
        WRITING.set(false);
        let refused = || messages.iter().zip(rows).filter(|(one, _)| one.err != OK);
        let count = refused().count();
        if count > 0 {
            let named = refused().map(|(one, &row)| (row, one.payload.is_null()));
            self.in_flight.not_taken(chunk, named);
        }
        (count < messages.len()).then_some(mark)
    }

    /// The interceptor: the message is on the brokers, or lost.
    pub fn acknowledged(&self, message: &Message) {
        // A message that is refused at once is told of too, in the very call that refuses it.
        if !WRITING.get() {
            self.in_flight.acknowledged(message);
        }
    }
}
