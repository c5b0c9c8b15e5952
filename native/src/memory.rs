//! Memory that Python sees.

use std::ffi::c_int;
use std::ptr::NonNull;

use pyo3::ffi;
use pyo3::prelude::*;

use crate::arena::Arena;

/// Bytes written once and then read by Python; they are used again when the last array over them is gone.
#[pyclass(frozen, module = "streamer_native._native")]
pub struct Block {
    pub arena: Arena,
}

#[pymethods]
impl Block {
    fn __len__(&self) -> usize {
        self.arena.bytes().len()
    }

    /// # Safety
    /// Called by Python only, with a view to fill. The memory lives as long as the object, which the view holds, and
    /// it is not written to any more: it is shown read-only.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let bytes = slf.get().arena.bytes();
        let (start, size) = (
            bytes.as_ptr().cast_mut().cast(),
            bytes.len() as ffi::Py_ssize_t,
        );
        // SAFETY: `view` is Python's, and the rest as said above.
        match unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, size, 1, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}

/// Bytes that Python writes, such as those from a socket; they are used again when the last view of them is gone.
#[pyclass(frozen, module = "streamer_native._native")]
pub struct OpenBlock {
    start: NonNull<u8>,
    size: usize,
    /// The owner of the bytes. It is not accessed again, so that no code here reads bytes while Python writes them.
    _arena: Arena,
}

// SAFETY: the memory behind `start` is the arena's, which may go to other threads, and only Python touches it.
unsafe impl Send for OpenBlock {}
// SAFETY: as above.
unsafe impl Sync for OpenBlock {}

#[pymethods]
impl OpenBlock {
    #[new]
    fn new(size: usize) -> OpenBlock {
        let mut arena = Arena::take(size);
        OpenBlock {
            start: NonNull::from(arena.bytes_mut()).cast(),
            size,
            _arena: arena,
        }
    }

    fn __len__(&self) -> usize {
        self.size
    }

    /// # Safety
    /// Called by Python only, with a view to fill. The memory lives as long as the object, which the view holds.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let (start, size) = (slf.get().start.as_ptr().cast(), slf.get().size);
        let size = size as ffi::Py_ssize_t;
        // SAFETY: `view` is Python's, and the rest as said above.
        match unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, size, 0, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}
