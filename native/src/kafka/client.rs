//! One client of confluent-kafka's: its handle while it lives, and what interceptors tell of it.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard};

use super::library::{Library, Message, PRODUCER, Rk};
use super::marks::Marks;
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
    pub marks: Marks,
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
        // Safety: librdkafka has only just made it.
        let kind = unsafe { (library.r#type)(rk) };
        Client {
            library,
            kind,
            handle: Mutex::new(Some(Open { rk, reading: None })),
            marks: Marks::new(kind == PRODUCER),
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

    /// So many messages are about to be handed over in this thread; `None` while too many blocks are outstanding.
    pub fn handing_over(&self, count: u32) -> Option<HandingOver<'_>> {
        let mark = self.marks.begin(count)?;
        WRITING.set(true);
        Some(HandingOver {
            marks: &self.marks,
            mark,
            rest: count,
        })
    }

    /// The interceptor: the message is on the brokers, or lost.
    pub fn acknowledged(&self, message: &mut Message) {
        // A message that is refused at once is told of too, in the very call that refuses it.
        if !WRITING.get() {
            self.marks.acknowledged(message);
        }
    }
}

/// While messages are handed over in this thread.
pub struct HandingOver<'a> {
    marks: &'a Marks,
    pub mark: u32,
    rest: u32,
}

impl HandingOver<'_> {
    /// So many of them were taken: they stay outstanding until they are acknowledged.
    pub fn taken(&mut self, count: u32) {
        self.rest -= count;
    }
}

impl Drop for HandingOver<'_> {
    fn drop(&mut self) {
        WRITING.set(false);
        self.marks.not_taken(self.mark, self.rest);
    }
}
