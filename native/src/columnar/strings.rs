//! Byte strings between Python's objects and one buffer; `_native.pyi` documents the names.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

use super::core::spans::{NULL, STRANGER, Spans};
use super::core::strings::{block_size, place, put};
use super::view::ViewedSpans;
use crate::arena::Arena;
use crate::memory::Block;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(join, module)?)?;
    module.add_function(wrap_pyfunction!(texts, module)?)?;
    module.add_function(wrap_pyfunction!(strings, module)?)?;
    module.add_function(wrap_pyfunction!(are_texts, module)?)?;
    module.add_function(wrap_pyfunction!(gathered, module)?)
}

#[pyfunction]
fn join<'py>(py: Python<'py>, values: &Bound<'py, PyList>) -> PyResult<Bound<'py, Block>> {
    let held: Vec<Bound<'py, PyAny>> = values.iter().collect();
    let strings: Vec<Result<&[u8], i64>> = held
        .iter()
        .map(|value| match value.cast::<PyBytes>() {
            Ok(bytes) => Ok(bytes.as_bytes()),
            Err(_) if value.is_none() => Err(NULL),
            Err(_) => Err(STRANGER),
        })
        .collect();
    let length =
        |string: &Result<&[u8], i64>| string.map_or_else(|none| none, |own| own.len() as i64);
    let lengths: Vec<i64> = strings.iter().map(length).collect();
    packed(py, &lengths, strings.into_iter().flatten())
}

#[pyfunction]
fn gathered<'py>(
    py: Python<'py>,
    buffer: &Bound<'py, PyAny>,
    starts: &Bound<'py, PyAny>,
    lengths: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, Block>> {
    let held = ViewedSpans::of([buffer, starts, lengths])?;
    let spans = held.spans()?;
    packed(
        py,
        spans.lengths,
        (0..spans.len()).filter_map(|row| spans.get(row)),
    )
}

/// Strings of these lengths, those below 0 left out, in one block.
fn packed<'py, 'a>(
    py: Python<'py>,
    lengths: &[i64],
    strings: impl Iterator<Item = &'a [u8]>,
) -> PyResult<Bound<'py, Block>> {
    let mut arena = Arena::take(block_size(lengths));
    let out = place(arena.bytes_mut(), lengths);
    strings.fold(out, |out, string| put(out, string));
    Bound::new(py, Block { arena })
}

#[pyfunction]
fn texts<'py>(
    py: Python<'py>,
    buffer: &Bound<'py, PyAny>,
    starts: &Bound<'py, PyAny>,
    lengths: &Bound<'py, PyAny>,
    missing: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyList>> {
    objects(py, [buffer, starts, lengths], missing, |raw| {
        PyString::from_bytes(py, raw).map(Bound::into_any)
    })
}

#[pyfunction]
fn strings<'py>(
    py: Python<'py>,
    buffer: &Bound<'py, PyAny>,
    starts: &Bound<'py, PyAny>,
    lengths: &Bound<'py, PyAny>,
    missing: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyList>> {
    objects(py, [buffer, starts, lengths], missing, |raw| {
        Ok(PyBytes::new(py, raw).into_any())
    })
}

fn objects<'py>(
    py: Python<'py>,
    views: [&Bound<'py, PyAny>; 3],
    missing: &Bound<'py, PyAny>,
    make: impl Fn(&[u8]) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyList>> {
    let held = ViewedSpans::of(views)?;
    let spans = held.spans()?;
    let of_row = |row| spans.get(row).map_or_else(|| Ok(missing.clone()), &make);
    let objects = (0..spans.len()).map(of_row).collect::<PyResult<Vec<_>>>()?;
    PyList::new(py, objects)
}

#[pyfunction]
fn are_texts(
    buffer: &Bound<'_, PyAny>,
    starts: &Bound<'_, PyAny>,
    lengths: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    let held = ViewedSpans::of([buffer, starts, lengths])?;
    let spans: Spans<'_> = held.spans()?;
    let is_text = |raw: &[u8]| std::str::from_utf8(raw).is_ok();
    Ok((0..spans.len()).all(|row| spans.get(row).is_none_or(is_text)))
}
