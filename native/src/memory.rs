//! Memory that Python sees.

use std::ffi::c_int;

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
