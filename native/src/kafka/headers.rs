//! Headers of messages that came, and of those that go.

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};

use super::library::{BAD_MESSAGE, Code, HeaderList, Library, Message, OK};
use super::outgoing::HeaderOf;

/// Headers that came, one after the other.
#[derive(Default)]
pub struct Received {
    /// Where in the bytes the name of each begins, and how long it is; and the same of its value, -1 for null.
    pub places: Vec<[i64; 4]>,
    pub bytes: Vec<u8>,
}

impl Received {
    /// Adds the headers of this message; none if it has none, or some that cannot be read.
    ///
    /// # Safety
    /// The message is one of librdkafka's that lives.
    pub unsafe fn add(&mut self, library: &Library, message: *const Message) {
        let mut list: HeaderList = null_mut();
        // Safety: as above; so long lives the list. Names end with a null, values are as long as they say.
        unsafe {
            if (library.message_headers)(message, &mut list) != OK {
                return;
            }
            for at in 0..(library.header_cnt)(list) {
                let (mut name, mut value, mut size) = (null(), null::<c_void>(), 0usize);
                if (library.header_get_all)(list, at, &mut name, &mut value, &mut size) == OK
                    && !name.is_null()
                {
                    let name = CStr::from_ptr(name).to_bytes();
                    let value = (!value.is_null())
                        .then(|| std::slice::from_raw_parts(value.cast::<u8>(), size));
                    self.put(name, value);
                }
            }
        }
    }

    fn put(&mut self, name: &[u8], value: Option<&[u8]>) {
        let name_at = self.bytes.len();
        self.bytes.extend_from_slice(name);
        let value_at = self.bytes.len();
        self.bytes.extend_from_slice(value.unwrap_or_default());
        let size = value.map_or(-1, |value| value.len() as i64);
        self.places
            .push([name_at as i64, name.len() as i64, value_at as i64, size]);
    }
}

/// A list for one message to take along, owned by us until the message is taken.
pub struct OwnList<'a> {
    library: &'a Library,
    list: HeaderList,
}

impl<'a> OwnList<'a> {
    pub fn of<'b>(
        library: &'a Library,
        headers: impl ExactSizeIterator<Item = HeaderOf<'b>>,
    ) -> Result<OwnList<'a>, Code> {
        // Safety: librdkafka copies names and values.
        unsafe {
            let own = OwnList {
                library,
                list: (library.headers_new)(headers.len()),
            };
            for (name, value) in headers {
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
