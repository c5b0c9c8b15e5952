//! The memory of Python objects, by the buffer protocol.

use std::marker::PhantomData;

use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::core::spans::Spans;

/// The contiguous memory of an object, held until this is dropped.
///
/// By the contract of `pipelines.data.spans` and `pipelines.data.columns` it is not written to after it was made.
pub struct View<'py> {
    raw: Box<ffi::Py_buffer>,
    // It is released with the interpreter attached.
    attached: PhantomData<Python<'py>>,
}

impl<'py> View<'py> {
    /// Raises `BufferError` (or `TypeError`) for an object that has no contiguous memory to show.
    pub fn of(object: &Bound<'py, PyAny>) -> PyResult<View<'py>> {
        let mut raw = Box::new(ffi::Py_buffer::new());
        // SAFETY: `raw` is a buffer that has not been filled, and it does not move while it is in use.
        if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &mut *raw, ffi::PyBUF_SIMPLE) } == 0 {
            Ok(View {
                raw,
                attached: PhantomData,
            })
        } else {
            Err(PyErr::fetch(object.py()))
        }
    }

    pub fn bytes(&self) -> &[u8] {
        let size = usize::try_from(self.raw.len).unwrap_or(0);
        if size == 0 || self.raw.buf.is_null() {
            return &[];
        }
        // SAFETY: the exporter keeps `len` bytes at `buf` until they are released, and they are not written to (above).
        unsafe { std::slice::from_raw_parts(self.raw.buf.cast(), size) }
    }

    /// The memory as int64. Raises `ValueError` if its items are of another size.
    pub fn numbers(&self) -> PyResult<&[i64]> {
        let bytes = self.bytes();
        if bytes.is_empty() {
            return Ok(&[]);
        }
        // SAFETY: any eight bytes are an i64; the bytes before the first and after the last one are handled below.
        let (before, numbers, after) = unsafe { bytes.align_to::<i64>() };
        if self.raw.itemsize != 8 || !before.is_empty() || !after.is_empty() {
            return Err(PyValueError::new_err("starts and lengths must be int64"));
        }
        Ok(numbers)
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        // SAFETY: it was filled by PyObject_GetBuffer, and is released once.
        unsafe { ffi::PyBuffer_Release(&mut *self.raw) }
    }
}

/// The memory of a `Spans`: its buffer, starts and lengths.
pub struct ViewedSpans<'py>([View<'py>; 3]);

impl<'py> ViewedSpans<'py> {
    pub fn of([buffer, starts, lengths]: [&Bound<'py, PyAny>; 3]) -> PyResult<ViewedSpans<'py>> {
        Ok(ViewedSpans([
            View::of(buffer)?,
            View::of(starts)?,
            View::of(lengths)?,
        ]))
    }

    /// Of the three items of a tuple that begin at this one.
    pub fn at(tuple: &Bound<'py, PyTuple>, first: usize) -> PyResult<ViewedSpans<'py>> {
        let item = |place: usize| tuple.get_item(first + place);
        ViewedSpans::of([&item(0)?, &item(1)?, &item(2)?])
    }

    /// The strings. Raises `ValueError` if one does not lie in the buffer.
    pub fn spans(&self) -> PyResult<Spans<'_>> {
        let [buffer, starts, lengths] = &self.0;
        Spans::checked(buffer.bytes(), starts.numbers()?, lengths.numbers()?)
            .map_err(|outside| PyValueError::new_err(outside.to_string()))
    }
}
