//! Arrays of answers on their way into JSON; `_native.pyi` documents the names.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyBytes, PyList};

use crate::columnar::View;
use crate::json::core::encode::{Element, put_array};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(inference_entries, module)?)
}

#[pyfunction]
fn inference_entries<'py>(
    py: Python<'py>,
    rows: usize,
    head: &[u8],
    dtype: &str,
    values: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyList>> {
    let element = Element::named(dtype)
        .ok_or_else(|| PyValueError::new_err(format!("there are no numbers of type {dtype}")))?;
    let view = View::of(values)?;
    let bytes = view.bytes();
    let width = bytes.len().checked_div(rows).unwrap_or(0);
    if width * rows != bytes.len() || width % element.size() != 0 {
        return Err(PyValueError::new_err(format!(
            "{} bytes are no {rows} rows of {dtype}",
            bytes.len()
        )));
    }
    let entries = PyList::empty(py);
    let mut text = Vec::with_capacity(head.len() + width * 2 + 16);
    for row in 0..rows {
        let own = &bytes[row * width..(row + 1) * width];
        if !element.is_finite(own) {
            entries.append(py.None())?;
            continue;
        }
        text.clear();
        text.extend_from_slice(head);
        put_array(&mut text, own, element, &[width / element.size()]);
        text.push(b'}');
        entries.append(PyBytes::new(py, &text))?;
    }
    Ok(entries)
}
