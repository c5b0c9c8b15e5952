//! The functions of librdkafka, found at run time in the library that confluent-kafka has loaded.

#![allow(non_camel_case_types)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

/// Client, configuration, queue, topic, headers, error: only ever seen through pointers.
#[repr(C)]
pub struct Opaque {
    _private: [u8; 0],
}

pub type Rk = *mut Opaque;
pub type Conf = *mut Opaque;
pub type Queue = *mut Opaque;
pub type Topic = *mut Opaque;
pub type HeaderList = *mut Opaque;
pub type KafkaError = *mut Opaque;
/// `rd_kafka_resp_err_t`.
pub type Code = c_int;

pub const OK: Code = 0;
pub const BAD_MESSAGE: Code = -199;
pub const INVALID_ARGUMENT: Code = -186;
pub const QUEUE_FULL: Code = -184;
pub const NOT_IMPLEMENTED: Code = -170;
pub const FATAL: Code = -150;

pub const PRODUCER: c_int = 0;
pub const CONSUMER: c_int = 1;
pub const ANY_PARTITION: i32 = -1;

/// `rd_kafka_message_t`, part of librdkafka's stable interface.
#[repr(C)]
pub struct Message {
    pub err: Code,
    pub rkt: Topic,
    pub partition: i32,
    pub payload: *mut c_void,
    pub len: usize,
    pub key: *mut c_void,
    pub key_len: usize,
    pub offset: i64,
    pub private: *mut c_void,
}

/// `rd_kafka_vu_t`: one argument of `rd_kafka_produceva`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Argument {
    pub kind: c_int,
    pub value: ArgumentValue,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub union ArgumentValue {
    pub pointer: *mut Opaque,
    pub int: c_int,
    pub i32: i32,
    pub i64: i64,
    pub bytes: ArgumentBytes,
    _size: [u8; 64],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ArgumentBytes {
    pub start: *const u8,
    pub size: usize,
}

pub const ARGUMENT_TOPIC: c_int = 2;
pub const ARGUMENT_PARTITION: c_int = 3;
pub const ARGUMENT_VALUE: c_int = 4;
pub const ARGUMENT_KEY: c_int = 5;
pub const ARGUMENT_FLAGS: c_int = 7;
pub const ARGUMENT_TIMESTAMP: c_int = 8;
pub const ARGUMENT_HEADERS: c_int = 10;

/// Topic, start and size of the key, number of partitions, and two that are not looked at.
pub type Partitioner =
    unsafe extern "C" fn(Topic, *const c_void, usize, i32, *mut c_void, *mut c_void) -> i32;
pub type OnNew = unsafe extern "C" fn(Rk, *const Opaque, *mut c_void, *mut c_char, usize) -> Code;
pub type OnConfDestroy = unsafe extern "C" fn(*mut c_void) -> Code;
pub type OnAcknowledgement = unsafe extern "C" fn(Rk, *mut Message, *mut c_void) -> Code;
pub type OnDestroy = unsafe extern "C" fn(Rk, *mut c_void) -> Code;

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// librdkafka's functions. Their names lack the leading `rd_kafka_`.
        pub struct Library {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Library {
            fn find(handle: &Handle) -> Result<Library, String> {
                Ok(Library {
                    // Safety: the signatures are those of librdkafka's header, which promises to keep them.
                    $($name: unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                            handle.symbol(stringify!($name))?,
                        )
                    },)*
                })
            }
        }
    };
}

functions! {
    version: fn() -> c_int;
    r#type: fn(Rk) -> c_int;
    conf_new: fn() -> Conf;
    conf_get: fn(Conf, *const c_char, *mut c_char, *mut usize) -> c_int;
    conf_destroy: fn(Conf);
    conf_set: fn(Conf, *const c_char, *const c_char, *mut c_char, usize) -> c_int;
    conf_interceptor_add_on_new: fn(Conf, *const c_char, OnNew, *mut c_void) -> Code;
    conf_interceptor_add_on_conf_destroy: fn(Conf, *const c_char, OnConfDestroy, *mut c_void) -> Code;
    interceptor_add_on_acknowledgement: fn(Rk, *const c_char, OnAcknowledgement, *mut c_void) -> Code;
    interceptor_add_on_destroy: fn(Rk, *const c_char, OnDestroy, *mut c_void) -> Code;
    queue_new: fn(Rk) -> Queue;
    queue_destroy: fn(Queue);
    queue_get_partition: fn(Rk, *const c_char, i32) -> Queue;
    queue_forward: fn(Queue, Queue);
    consume_batch_queue: fn(Queue, c_int, *mut *mut Message, usize) -> isize;
    message_destroy: fn(*mut Message);
    message_timestamp: fn(*const Message, *mut c_int) -> i64;
    message_headers: fn(*const Message, *mut HeaderList) -> Code;
    message_errstr: fn(*const Message) -> *const c_char;
    header_cnt: fn(HeaderList) -> usize;
    header_get_all: fn(HeaderList, usize, *mut *const c_char, *mut *const c_void, *mut usize) -> Code;
    headers_new: fn(usize) -> HeaderList;
    headers_destroy: fn(HeaderList);
    header_add: fn(HeaderList, *const c_char, isize, *const c_void, isize) -> Code;
    outq_len: fn(Rk) -> c_int;
    topic_new: fn(Rk, *const c_char, Conf) -> Topic;
    topic_destroy: fn(Topic);
    topic_name: fn(Topic) -> *const c_char;
    produce_batch: fn(Topic, i32, c_int, *mut Message, c_int) -> c_int;
    produceva: fn(Rk, *const Argument, usize) -> KafkaError;
    error_code: fn(KafkaError) -> Code;
    error_is_fatal: fn(KafkaError) -> c_int;
    error_destroy: fn(KafkaError);
    msg_partitioner_consistent: fn(Topic, *const c_void, usize, i32, *mut c_void, *mut c_void) -> i32;
    msg_partitioner_murmur2: fn(Topic, *const c_void, usize, i32, *mut c_void, *mut c_void) -> i32;
    msg_partitioner_fnv1a: fn(Topic, *const c_void, usize, i32, *mut c_void, *mut c_void) -> i32;
}

static LIBRARY: OnceLock<Library> = OnceLock::new();

/// The functions of the loaded library at `path`, which is not loaded again. The error names the missing one.
pub fn load(path: &str) -> Result<&'static Library, String> {
    if let Some(found) = LIBRARY.get() {
        return Ok(found);
    }
    let found = Library::find(&Handle::of_loaded(path)?)?;
    Ok(LIBRARY.get_or_init(|| found))
}

/// The functions, once `load` has found them.
pub fn library() -> Option<&'static Library> {
    LIBRARY.get()
}

impl Library {
    /// librdkafka's version, `0xMMmmrrpp`.
    pub fn version(&self) -> u32 {
        // Safety: takes nothing.
        unsafe { (self.version)() as u32 }
    }

    /// Whether it was built with support for plug-ins.
    pub fn has_plugins(&self) -> bool {
        let mut text = [0u8; 512];
        let mut size = text.len();
        // Safety: the size is that of the text, which is written with a null at its end.
        let answer = unsafe {
            let conf = (self.conf_new)();
            let answer = (self.conf_get)(
                conf,
                c"builtin.features".as_ptr(),
                text.as_mut_ptr().cast(),
                &mut size,
            );
            (self.conf_destroy)(conf);
            answer
        };
        let features = CStr::from_bytes_until_nul(&text).map(|text| text.to_string_lossy());
        answer == 0
            && features.is_ok_and(|text| text.split(',').any(|feature| feature == "plugins"))
    }
}

/// The text at a pointer of librdkafka's; empty for null.
///
/// # Safety
/// The pointer is null or one to a text that ends with a null and lives for the duration of the call.
pub unsafe fn text(start: *const c_char) -> String {
    if start.is_null() {
        return String::new();
    }
    // Safety: as above.
    unsafe { CStr::from_ptr(start) }
        .to_string_lossy()
        .into_owned()
}

#[cfg(unix)]
struct Handle(*mut c_void);

#[cfg(unix)]
impl Handle {
    fn of_loaded(path: &str) -> Result<Handle, String> {
        let name = CString::new(path).map_err(|_| format!("the path {path:?} cannot be"))?;
        // Safety: a text that ends with a null; a library that is loaded already runs no code by being asked for.
        let handle = unsafe {
            libc::dlopen(
                name.as_ptr(),
                libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NOLOAD,
            )
        };
        if handle.is_null() {
            return Err(format!("{path} is not loaded"));
        }
        Ok(Handle(handle))
    }

    fn symbol(&self, name: &str) -> Result<*mut c_void, String> {
        let name = format!("rd_kafka_{}", name.trim_start_matches("r#"));
        let text =
            CString::new(name.as_str()).map_err(|_| format!("the name {name:?} cannot be"))?;
        // Safety: a handle of dlopen's, and a text that ends with a null. Dependencies are searched as well.
        let found = unsafe { libc::dlsym(self.0, text.as_ptr()) };
        if found.is_null() {
            return Err(format!("librdkafka has no {name}"));
        }
        Ok(found)
    }
}

#[cfg(not(unix))]
struct Handle;

#[cfg(not(unix))]
impl Handle {
    fn of_loaded(_path: &str) -> Result<Handle, String> {
        Err("it is not made for this operating system".to_string())
    }

    fn symbol(&self, name: &str) -> Result<*mut c_void, String> {
        Err(format!("librdkafka has no {name}"))
    }
}
