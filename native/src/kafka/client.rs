//! One client of confluent-kafka's: its handle while it lives, and what interceptors tell of it.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::failure::Failure;
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
    outstanding: AtomicI64,
    failures: Mutex<Vec<Failure>>,
}

/// What may be used of a client that has not been destroyed; whoever holds it keeps it from being destroyed.
pub struct Open {
    pub rk: Rk,
    pub reading: Option<Reading>,
}

// Safety: librdkafka's handles may be used by any thread; all use is under the client's lock.
unsafe impl Send for Open {}

impl Client {
    pub fn new(library: &'static Library, rk: Rk) -> Client {
        Client {
            library,
            // Safety: librdkafka has only just made it.
            kind: unsafe { (library.r#type)(rk) },
            handle: Mutex::new(Some(Open { rk, reading: None })),
            outstanding: AtomicI64::new(0),
            failures: Mutex::default(),
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

    /// So many messages are handed over; they count as outstanding from before it happens.
    pub fn handing_over(&self, count: usize) -> HandingOver<'_> {
        self.outstanding.fetch_add(count as i64, Ordering::AcqRel);
        WRITING.set(true);
        HandingOver {
            client: self,
            rest: count,
        }
    }

    /// How many messages were handed over and not yet acknowledged or lost.
    pub fn outstanding(&self) -> i64 {
        self.outstanding.load(Ordering::Acquire)
    }

    /// Takes what was lost so far. Complete for all that was handed over, once nothing is outstanding.
    pub fn failures(&self) -> Vec<Failure> {
        std::mem::take(&mut *lock(&self.failures))
    }

    /// The interceptor: the message is on the brokers, or lost.
    pub fn acknowledged(&self, message: &Message) {
        // A message that is refused at once is told of too, in the very call that refuses it.
        if WRITING.get() {
            return;
        }
        if message.err != OK {
            let failure = Failure::of(self.library, message);
            lock(&self.failures).push(failure);
        }
        // After the failure: whoever sees none outstanding sees all failures.
        self.outstanding.fetch_sub(1, Ordering::AcqRel);
    }
}

/// While messages are handed over in this thread.
pub struct HandingOver<'a> {
    client: &'a Client,
    rest: usize,
}

impl HandingOver<'_> {
    /// So many of them were taken: they stay outstanding until they are acknowledged.
    pub fn taken(&mut self, count: usize) {
        self.rest -= count;
    }
}

impl Drop for HandingOver<'_> {
    fn drop(&mut self) {
        WRITING.set(false);
        self.client
            .outstanding
            .fetch_sub(self.rest as i64, Ordering::AcqRel);
    }
}
