//! Requests of the Open Inference Protocol on their way into columns; `_native.pyi` documents the names.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

use super::core::request::{Request, read};
use crate::arena::Arena;
use crate::memory::Block;

/// Bytes from which on text is read without the interpreter's lock.
const LONG: usize = 1 << 20;
/// Bytes from which on data are in a block of the pool: fresh memory comes from the system page by page.
const LARGE: usize = 1 << 16;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(inference_request, module)?)
}

type Parts<'py> = (
    Bound<'py, PyBytes>,
    Option<Bound<'py, PyString>>,
    Bound<'py, PyList>,
);

#[pyfunction]
fn inference_request<'py>(
    py: Python<'py>,
    text: &Bound<'py, PyBytes>,
) -> PyResult<Option<Parts<'py>>> {
    let bytes = text.as_bytes();
    let taken_apart = if bytes.len() < LONG {
        parts(bytes)
    } else {
        py.detach(|| parts(bytes))
    };
    let Some(request) = taken_apart else {
        return Ok(None);
    };
    let id = request
        .id
        .and_then(|(start, end)| std::str::from_utf8(&bytes[start..end]).ok())
        .map(|id| PyString::new(py, id));
    let data = PyList::empty(py);
    let mut start = 0;
    for end in request.ends {
        data.append(memory(py, &request.data[start..end])?)?;
        start = end;
    }
    Ok(Some((PyBytes::new(py, &request.rest), id, data)))
}

fn parts(bytes: &[u8]) -> Option<Request> {
    std::str::from_utf8(bytes).ok().and_then(|_| read(bytes))
}

fn memory<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    if data.len() < LARGE {
        return Ok(PyBytes::new(py, data).into_any());
    }
    let mut arena = Arena::take(data.len());
    arena.bytes_mut().copy_from_slice(data);
    Ok(Bound::new(py, Block { arena })?.into_any())
}
