//! Memory that columns share, used again when the last of them is gone: fresh pages would be faulted in each time.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Mutex;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::plugin::lock;

const ALIGNMENT: usize = 64;
/// Pieces are of sizes that double. The smallest are small: a block may be of one record, and there may be many.
const SMALLEST: usize = 256;
/// Larger pieces go back to the system at once.
const LARGEST_KEPT: usize = 8 << 20;
/// So many bytes are kept at most.
const KEPT: usize = 32 << 20;
const SIZES: usize = (LARGEST_KEPT / SMALLEST).ilog2() as usize + 1;

static POOL: Mutex<Pool> = Mutex::new(Pool {
    pieces: [const { Vec::new() }; SIZES],
    bytes: 0,
});

/// Bytes of our own, written once and then read by Python; they go back to the pool with the last array over them.
#[pyclass(frozen, module = "streamer_native._native")]
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
            memory.piece.start.as_ptr().cast::<c_void>(),
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
    piece: ManuallyDrop<Piece>,
    length: usize,
}

// Safety: they are written by their one owner before Python sees them, and only read afterwards.
unsafe impl Sync for Memory {}

impl Memory {
    pub fn new(length: usize) -> Memory {
        let capacity = length.max(SMALLEST).next_power_of_two();
        let recycled = lock(&POOL).take(capacity);
        let piece = ManuallyDrop::new(recycled.unwrap_or_else(|| Piece::new(capacity)));
        Memory { piece, length }
    }

    pub fn start(&mut self) -> *mut u8 {
        self.piece.start.as_ptr()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Safety: it is not touched again.
        let piece = unsafe { ManuallyDrop::take(&mut self.piece) };
        // What is in the way is freed after the pool has been let go.
        let _left_over = lock(&POOL).put(piece);
    }
}

/// Bytes that are ours.
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

    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, ALIGNMENT)
            .unwrap_or_else(|_| handle_alloc_error(Layout::new::<u8>()))
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        // Safety: allocated with this very layout in `new`.
        unsafe { dealloc(self.start.as_ptr(), Piece::layout(self.capacity)) }
    }
}

/// Pieces by size. The one that came back last is given out first: it is likely still in the processor's caches.
struct Pool {
    pieces: [Vec<Piece>; SIZES],
    bytes: usize,
}

impl Pool {
    fn take(&mut self, capacity: usize) -> Option<Piece> {
        let piece = self.pieces.get_mut(Pool::size(capacity))?.pop()?;
        self.bytes -= piece.capacity;
        Some(piece)
    }

    /// Keep it; what is given back is not kept. When there is too much, all goes: it may be of sizes that nobody wants.
    fn put(&mut self, piece: Piece) -> Vec<Piece> {
        if piece.capacity > LARGEST_KEPT {
            return vec![piece];
        }
        let mut left_over = Vec::new();
        if self.bytes + piece.capacity > KEPT {
            left_over = self.pieces.iter_mut().flat_map(std::mem::take).collect();
            self.bytes = 0;
        }
        self.bytes += piece.capacity;
        self.pieces[Pool::size(piece.capacity)].push(piece);
        left_over
    }

    fn size(capacity: usize) -> usize {
        (capacity / SMALLEST).ilog2() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Pool {
        Pool {
            pieces: [const { Vec::new() }; SIZES],
            bytes: 0,
        }
    }

    #[test]
    fn a_piece_is_given_out_again_for_its_size_only() {
        let mut pool = pool();
        assert!(pool.put(Piece::new(1024)).is_empty());
        assert!(pool.take(2048).is_none());
        assert!(pool.take(SMALLEST).is_none());
        assert_eq!(pool.take(1024).map(|piece| piece.capacity), Some(1024));
        assert!(pool.take(1024).is_none());
        assert_eq!(pool.bytes, 0);
    }

    #[test]
    fn it_never_keeps_more_than_it_may() {
        let mut pool = pool();
        for _ in 0..KEPT / LARGEST_KEPT {
            assert!(pool.put(Piece::new(LARGEST_KEPT)).is_empty());
        }
        assert_eq!(pool.put(Piece::new(SMALLEST)).len(), KEPT / LARGEST_KEPT);
        assert_eq!(pool.bytes, SMALLEST);
        assert_eq!(pool.put(Piece::new(2 * LARGEST_KEPT)).len(), 1);
        assert!(pool.take(2 * LARGEST_KEPT).is_none());
    }

    #[test]
    fn memory_of_nothing_and_of_much_can_be_written_and_let_go() {
        for length in [0, 1, SMALLEST, SMALLEST + 1, LARGEST_KEPT + 1] {
            let mut memory = Memory::new(length);
            // Safety: so many bytes are there.
            unsafe { std::ptr::write_bytes(memory.start(), 7, length) };
            assert_eq!(memory.start() as usize % ALIGNMENT, 0);
        }
    }
}
