//! Memory that columns share, used again when the last of them is gone: fresh pages would be faulted in each time.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::Mutex;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::plugin::lock;

const ALIGNMENT: usize = 64;
const SMALLEST: usize = 16 * 1024;
/// Larger pieces go back to the system at once, and so do those beyond so many bytes altogether.
const LARGEST_KEPT: usize = 8 << 20;
const KEPT: usize = 32 << 20;

static POOL: Mutex<Pool> = Mutex::new(Pool {
    pieces: Vec::new(),
    bytes: 0,
});

/// Bytes of our own, written once and then read by Python; they go back to the pool with the last array over them.
#[pyclass(frozen, module = "native._native")]
pub struct KafkaMemory {
    memory: Memory,
}

impl KafkaMemory {
    pub fn new(memory: Memory) -> KafkaMemory {
        KafkaMemory { memory }
    }
}

#[pymethods]
impl KafkaMemory {
    fn __len__(&self) -> usize {
        self.memory.length
    }

    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill"));
        }
        let memory = &slf.get().memory;
        let (start, length) = (
            memory.start.as_ptr().cast::<c_void>(),
            memory.length as ffi::Py_ssize_t,
        );
        // Safety: the view keeps this object, and so the memory, alive; nobody writes to it any more.
        if unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, 1, flags) } != 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        Ok(())
    }
}

/// So many bytes, not initialised, aligned for any column.
pub struct Memory {
    start: NonNull<u8>,
    capacity: usize,
    length: usize,
}

// Safety: it owns its bytes.
unsafe impl Send for Memory {}
// Safety: they are written by their one owner before Python sees them, and only read afterwards.
unsafe impl Sync for Memory {}

impl Memory {
    pub fn new(length: usize) -> Memory {
        let recycled = lock(&POOL).take();
        if let Some(piece) = recycled {
            if piece.capacity >= length {
                return Memory {
                    start: piece.start,
                    capacity: piece.capacity,
                    length,
                };
            }
            piece.free();
        }
        let capacity = length.max(SMALLEST).next_power_of_two();
        Memory {
            start: Piece::new(capacity).start,
            capacity,
            length,
        }
    }

    pub fn start(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let piece = Piece {
            start: self.start,
            capacity: self.capacity,
        };
        if let Some(left_over) = lock(&POOL).put(piece) {
            left_over.free();
        }
    }
}

struct Piece {
    start: NonNull<u8>,
    capacity: usize,
}

// Safety: it owns its bytes.
unsafe impl Send for Piece {}

impl Piece {
    fn new(capacity: usize) -> Piece {
        let layout = Piece::layout(capacity);
        // Safety: the size is not zero.
        let start = unsafe { alloc(layout) };
        match NonNull::new(start) {
            Some(start) => Piece { start, capacity },
            None => handle_alloc_error(layout),
        }
    }

    fn free(self) {
        // Safety: allocated with this very layout in `new`.
        unsafe { dealloc(self.start.as_ptr(), Piece::layout(self.capacity)) }
    }

    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, ALIGNMENT)
            .unwrap_or_else(|_| handle_alloc_error(Layout::new::<u8>()))
    }
}

/// The piece that came back last is given out first: it is likely still in the processor's caches.
struct Pool {
    pieces: Vec<Piece>,
    bytes: usize,
}

impl Pool {
    fn take(&mut self) -> Option<Piece> {
        let piece = self.pieces.pop()?;
        self.bytes -= piece.capacity;
        Some(piece)
    }

    fn put(&mut self, piece: Piece) -> Option<Piece> {
        if piece.capacity > LARGEST_KEPT || self.bytes + piece.capacity > KEPT {
            return Some(piece);
        }
        self.bytes += piece.capacity;
        self.pieces.push(piece);
        None
    }
}
