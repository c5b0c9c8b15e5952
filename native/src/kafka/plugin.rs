//! The entry that librdkafka calls for each client whose `plugin.library.paths` names this library.
//!
//! Nothing here may unwind into C, and nothing waits for Python: interceptors run in librdkafka's own threads.

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use super::client::Client;
use super::library::{Code, Conf, Message, NOT_IMPLEMENTED, OK, Opaque, Rk, library};

const NAME: *const c_char = c"streamer".as_ptr();

thread_local! {
    static MADE: RefCell<Option<Vec<Arc<Client>>>> = const { RefCell::new(None) };
    static ONLY_ERRORS: Cell<bool> = const { Cell::new(false) };
}

/// Keep the clients that this thread makes from now on, for `made`; `only_errors`: only failed deliveries are reported.
pub fn expect(only_errors: bool) {
    ONLY_ERRORS.set(only_errors);
    MADE.with_borrow_mut(|made| *made = Some(Vec::new()));
}

/// The one client that this thread made since `expect`, of the kind that librdkafka calls by this number.
pub fn made(kind: i32) -> Result<Arc<Client>, String> {
    ONLY_ERRORS.set(false);
    let mut found = MADE.with_borrow_mut(Option::take).unwrap_or_default();
    match (found.pop(), found.is_empty()) {
        (Some(client), true) if client.kind() == kind => Ok(client),
        (None, _) => Err(
            "librdkafka did not tell of the client: it may have loaded another copy of the plug-in"
                .into(),
        ),
        _ => Err("librdkafka told of more clients than one, or of one of the other kind".into()),
    }
}

/// The state of one configuration, and so of the client made of it; freed with the configuration.
#[derive(Default)]
struct Configured {
    client: Mutex<Option<Arc<Client>>>,
}

/// librdkafka's entry for plug-ins (`rd_kafka_plugin_f_conf_init_t`).
///
/// # Safety
/// Called by librdkafka only, with a configuration that is being set up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conf_init(
    conf: Conf,
    _: *mut *mut c_void,
    text: *mut c_char,
    size: usize,
) -> Code {
    let Some(library) = library() else {
        // Safety: librdkafka's buffer for the reason, of this size.
        unsafe {
            say(
                text,
                size,
                "streamer's plug-in is only for clients that streamer makes",
            )
        };
        return NOT_IMPLEMENTED;
    };
    let state: *mut c_void = Box::into_raw(Box::<Configured>::default()).cast();
    // Safety: the state lives until `on_conf_destroy`, which is the last call that librdkafka makes with it.
    unsafe {
        let code =
            (library.conf_interceptor_add_on_conf_destroy)(conf, NAME, on_conf_destroy, state);
        if code != OK {
            drop(Box::from_raw(state.cast::<Configured>()));
            return code;
        }
        if ONLY_ERRORS.get() {
            // confluent-kafka takes this property for itself. All that it would do with a message of ours is to let go
            // of it, in a thread of Python's; without a report librdkafka does, in its own. An older one may refuse.
            let name = c"delivery.report.only.error".as_ptr();
            (library.conf_set)(conf, name, c"true".as_ptr(), text, size);
        }
        (library.conf_interceptor_add_on_new)(conf, NAME, on_new, state)
    }
}

unsafe extern "C" fn on_conf_destroy(state: *mut c_void) -> Code {
    // Safety: made in `conf_init`, and called once. No thread of the client is left.
    let state = unsafe { Box::from_raw(state.cast::<Configured>()) };
    guarded(|| {
        if let Some(client) = take(&state.client) {
            client.gone();
        }
        OK
    })
}

unsafe extern "C" fn on_new(
    rk: Rk,
    _: *const Opaque,
    state: *mut c_void,
    _: *mut c_char,
    _: usize,
) -> Code {
    guarded(|| {
        let Some(library) = library() else {
            return NOT_IMPLEMENTED;
        };
        let client = Arc::new(Client::new(library, rk));
        let opaque = Arc::as_ptr(&client).cast_mut().cast();
        // Safety: the client is kept by the state until `on_conf_destroy`, after which no interceptor is called.
        let state = unsafe { &*state.cast::<Configured>() };
        *lock(&state.client) = Some(client.clone());
        for code in unsafe {
            [
                (library.interceptor_add_on_destroy)(rk, NAME, on_destroy, opaque),
                (library.interceptor_add_on_acknowledgement)(rk, NAME, on_acknowledgement, opaque),
            ]
        } {
            if code != OK {
                return code;
            }
        }
        MADE.with_borrow_mut(|made| {
            if let Some(made) = made {
                made.push(client);
            }
        });
        OK
    })
}

unsafe extern "C" fn on_destroy(_: Rk, client: *mut c_void) -> Code {
    // Safety: as `on_new` promises.
    let client = unsafe { &*client.cast::<Client>() };
    guarded(|| {
        client.release();
        OK
    })
}

unsafe extern "C" fn on_acknowledgement(_: Rk, message: *mut Message, client: *mut c_void) -> Code {
    // Safety: as `on_new` promises; the message lives for the duration of the call, and is only read.
    let (client, message) = unsafe { (&*client.cast::<Client>(), &*message) };
    guarded(|| {
        client.acknowledged(message);
        OK
    })
}

fn guarded(work: impl FnOnce() -> Code) -> Code {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(NOT_IMPLEMENTED)
}

/// # Safety
/// `start` is a buffer of `size` bytes.
unsafe fn say(start: *mut c_char, size: usize, reason: &str) {
    if start.is_null() || size == 0 {
        return;
    }
    let count = reason.len().min(size - 1);
    // Safety: no more bytes than there are, and a null after them.
    unsafe {
        std::ptr::copy_nonoverlapping(reason.as_ptr().cast(), start, count);
        *start.add(count) = 0;
    }
}

/// A lock that a panic elsewhere does not close for good.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn take<T>(mutex: &Mutex<Option<T>>) -> Option<T> {
    lock(mutex).take()
}
