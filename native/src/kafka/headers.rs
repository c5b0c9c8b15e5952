//! Headers of messages that came, and of those that go.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;

use super::columns::HeaderColumns;
use super::failure::copied as bytes_at;
use super::library::{BAD_MESSAGE, Code, HeaderList, Library, Message, OK};

/// Name and value.
pub type Header = (Vec<u8>, Option<Vec<u8>>);

/// The list of a message's headers; `None` for a message without any, or with headers that cannot be read.
///
/// # Safety
/// The message is one of librdkafka's that lives; so long lives the list.
pub unsafe fn list_of(library: &Library, message: *const Message) -> Option<HeaderList> {
    let mut list: HeaderList = null_mut();
    // Safety: as above.
    (unsafe { (library.message_headers)(message, &mut list) } == OK).then_some(list)
}

/// One header as it lies in librdkafka's memory: name, value (null: none), size of the value.
pub type Place = (*const c_char, *const u8, usize);

/// # Safety
/// The list is one of librdkafka's that lives; so long lives what is returned.
pub unsafe fn places(library: &Library, list: HeaderList, mut each: impl FnMut(Place)) {
    // Safety: as above.
    unsafe {
        for at in 0..(library.header_cnt)(list) {
            let (mut name, mut value, mut size) =
                (std::ptr::null(), std::ptr::null::<c_void>(), 0usize);
            if (library.header_get_all)(list, at, &mut name, &mut value, &mut size) == OK
                && !name.is_null()
            {
                each((name, value.cast(), size));
            }
        }
    }
}

/// # Safety
/// The message is one of librdkafka's that lives.
pub unsafe fn copied(library: &Library, message: *const Message) -> Vec<Header> {
    let mut found = Vec::new();
    // Safety: names end with a null; values are as long as they say.
    unsafe {
        if let Some(list) = list_of(library, message) {
            places(library, list, |(name, value, size)| {
                found.push((
                    CStr::from_ptr(name).to_bytes().to_vec(),
                    bytes_at(value, size),
                ));
            });
        }
    }
    found
}

/// A list for one message to take along, owned by us until the message is taken.
pub struct OwnList<'a> {
    library: &'a Library,
    list: HeaderList,
}

impl<'a> OwnList<'a> {
    pub fn of(
        library: &'a Library,
        columns: &HeaderColumns,
        row: usize,
    ) -> Result<OwnList<'a>, Code> {
        let (start, count) = columns.range(row);
        // Safety: librdkafka copies names and values, which lie in Python's buffers meanwhile.
        unsafe {
            let own = OwnList {
                library,
                list: (library.headers_new)(count),
            };
            for at in start..start + count {
                let name = columns.names.get(at).unwrap_or_default();
                let value = columns.values.get(at);
                let code = (library.header_add)(
                    own.list,
                    name.as_ptr().cast(),
                    name.len() as isize,
                    value.map_or(std::ptr::null(), <[u8]>::as_ptr).cast(),
                    value.map_or(0, <[u8]>::len) as isize,
                );
                if code != OK {
                    return Err(if code > 0 { code } else { BAD_MESSAGE });
                }
            }
            Ok(own)
        }
    }

    pub fn list(&self) -> HeaderList {
        self.list
    }

    /// The message was taken, and the list with it.
    pub fn taken(mut self) {
        self.list = null_mut();
    }
}

impl Drop for OwnList<'_> {
    fn drop(&mut self) {
        if !self.list.is_null() {
            // Safety: it is still ours.
            unsafe { (self.library.headers_destroy)(self.list) }
        }
    }
}
