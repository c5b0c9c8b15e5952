//! Working without the interpreter's lock, in threads that the process may leave behind.
//!
//! When Python ends, a daemon thread that wants the lock back is ended in the middle of it, by unwinding, which Rust
//! answers by aborting the process. So from then on such threads do not ask for it: they wait for the end.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// How long they wait for the end; if it has not come by then, somebody else has to be finished first, perhaps them.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the end waits for those that have asked for the lock already.
const LAST_WAIT: Duration = Duration::from_secs(1);
const SLICE: Duration = Duration::from_millis(1);

static ENDING: AtomicBool = AtomicBool::new(false);
static COMING_BACK: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static ENDS: Cell<bool> = const { Cell::new(false) };
}

/// As `Python::detach`.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let (done, _coming_back) = py.detach(|| {
        let done = work();
        (done, ComingBack::when_allowed())
    });
    done
}

/// For `atexit`: nobody asks for the lock any more but this thread.
#[pyfunction]
pub fn ending(py: Python<'_>) {
    ENDS.set(true);
    ENDING.store(true, Ordering::SeqCst);
    py.detach(|| {
        let began = Instant::now();
        while COMING_BACK.load(Ordering::SeqCst) > 0 && began.elapsed() < LAST_WAIT {
            sleep(SLICE);
        }
    });
}

/// While a thread waits for the lock.
struct ComingBack;

impl ComingBack {
    fn when_allowed() -> ComingBack {
        COMING_BACK.fetch_add(1, Ordering::SeqCst);
        while ENDING.load(Ordering::SeqCst) && !ENDS.get() {
            COMING_BACK.fetch_sub(1, Ordering::SeqCst);
            wait_for_the_end();
            COMING_BACK.fetch_add(1, Ordering::SeqCst);
        }
        ComingBack
    }
}

impl Drop for ComingBack {
    fn drop(&mut self) {
        COMING_BACK.fetch_sub(1, Ordering::SeqCst);
    }
}

fn wait_for_the_end() {
    let began = Instant::now();
    while ENDING.load(Ordering::SeqCst) && began.elapsed() < PATIENCE {
        sleep(SLICE * 20);
    }
    ENDING.store(false, Ordering::SeqCst);
}
