//! What Python sees: see `_native.pyi` for what each name means.

use std::collections::HashSet;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use super::core::columns::{self, Form, Part};
use super::core::encode::{self, Source, Spans};
use super::core::table::{Messages, NULL, Options, Outside, STRANGER, Table};
use super::view::View;
use super::writing;
use crate::arena::Arena;
use crate::memory::Block;

/// Bytes of a batch from which on other threads may run meanwhile. To wait for the interpreter again may take longer
/// than the work on less.
pub const WORTH_DETACHING: usize = 4 << 20;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Reader>()?;
    module.add_function(wrap_pyfunction!(join, module)?)?;
    module.add_function(wrap_pyfunction!(texts, module)?)?;
    module.add_function(wrap_pyfunction!(strings, module)?)?;
    module.add_function(wrap_pyfunction!(are_texts, module)?)?;
    module.add_function(wrap_pyfunction!(gathered, module)?)?;
    writing::register(module)
}

#[pyclass(frozen, module = "streamer_native._native")]
struct Reader {
    wanted: HashSet<Vec<u8>>,
    longest: usize,
    most: usize,
}

#[pymethods]
impl Reader {
    #[new]
    fn new(wanted: Vec<String>, longest: u64, most: u64) -> Reader {
        Reader {
            wanted: wanted.into_iter().map(String::into_bytes).collect(),
            longest: usize::try_from(longest).unwrap_or(usize::MAX),
            most: usize::try_from(most).unwrap_or(usize::MAX),
        }
    }

    fn read<'py>(
        &self,
        py: Python<'py>,
        buffer: &Bound<'py, PyAny>,
        starts: &Bound<'py, PyAny>,
        lengths: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let (buffer, starts, lengths) = (View::of(buffer)?, View::of(starts)?, View::of(lengths)?);
        let messages = Messages {
            bytes: buffer.bytes(),
            starts: starts.numbers()?,
            lengths: lengths.numbers()?,
        };
        if messages.starts.len() != messages.lengths.len() {
            return Err(PyValueError::new_err(
                "there must be as many starts as lengths",
            ));
        }
        let work = move || {
            let wanted = |key: &[u8]| self.wanted.contains(key);
            let options = Options {
                wanted: &wanted,
                longest: self.longest,
                most: self.most,
            };
            let table = Table::read(messages, &options)?;
            let layout = columns::layout(&table);
            let mut arena = Arena::take(layout.size);
            columns::fill(arena.bytes_mut(), &layout, &table, messages.bytes);
            Ok((table, layout, arena))
        };
        let size: i64 = messages
            .lengths
            .iter()
            .fold(0, |sum, length| sum.saturating_add((*length).max(0)));
        let done = if size as usize >= WORTH_DETACHING {
            py.detach(work)
        } else {
            work()
        };
        let (table, layout, arena) =
            done.map_err(|outside: Outside| PyValueError::new_err(outside.to_string()))?;
        let parts: Vec<_> = layout
            .parts
            .iter()
            .map(|part| described(py, &table, part))
            .collect::<PyResult<Vec<_>>>()?;
        let odd = (!table.odd.is_empty()).then_some(table.odd);
        let metadata = (!table.metadata.is_empty()).then_some(table.metadata);
        let block = Bound::new(py, Block { arena })?;
        (
            block,
            table.rows.len(),
            layout.lines,
            layout.rare,
            odd,
            metadata,
            parts,
        )
            .into_pyobject(py)
    }
}

fn described<'py>(py: Python<'py>, table: &Table, part: &Part) -> PyResult<Bound<'py, PyTuple>> {
    let column = &table.columns[part.column];
    let key = PyString::from_bytes(py, &column.key)?;
    let mask = part.mask.map_or(-1, |mask| mask as i64);
    let form = match part.form {
        Form::Wire => 0u8,
        Form::Mixed => 1,
        Form::Text => 2,
        Form::Bytes => 3,
        Form::Integer => 4,
        Form::Double => 5,
        Form::Boolean => 6,
        Form::Dense => 7,
        Form::Ragged => 8,
        Form::Rare => 9,
    };
    let first = column.first;
    let shape = PyTuple::new(py, &part.shape)?;
    let place = (
        part.line,
        mask,
        first,
        part.element,
        shape,
        part.total,
        part.offset,
        part.splits,
    );
    (
        key, form, place.0, place.1, place.2, place.3, place.4, place.5, place.6, place.7,
    )
        .into_pyobject(py)
}

#[pyfunction]
fn join<'py>(py: Python<'py>, values: &Bound<'py, PyList>) -> PyResult<Bound<'py, Block>> {
    let rows = values.len();
    let held: Vec<Bound<'py, PyAny>> = values.iter().collect();
    let strings: Vec<Result<&[u8], i64>> = held
        .iter()
        .map(|value| match value.cast::<PyBytes>() {
            Ok(bytes) => Ok(bytes.as_bytes()),
            Err(_) if value.is_none() => Err(NULL),
            Err(_) => Err(STRANGER),
        })
        .collect();
    let total: usize = strings
        .iter()
        .map(|string| string.map_or(0, <[u8]>::len))
        .sum();
    let mut arena = Arena::take(rows * 16 + total);
    let (table, mut out) = arena.bytes_mut().split_at_mut(rows * 16);
    let (starts, lengths) = table.split_at_mut(rows * 8);
    let mut at = 0i64;
    for (row, string) in strings.iter().enumerate() {
        let length = string.map_or_else(|none| none, |string| string.len() as i64);
        starts[row * 8..row * 8 + 8].copy_from_slice(&at.to_ne_bytes());
        lengths[row * 8..row * 8 + 8].copy_from_slice(&length.to_ne_bytes());
        if let Ok(string) = string {
            let (place, rest) = out.split_at_mut(string.len());
            place.copy_from_slice(string);
            out = rest;
            at += length;
        }
    }
    Bound::new(py, Block { arena })
}

#[pyfunction]
fn gathered<'py>(
    py: Python<'py>,
    buffer: &Bound<'py, PyAny>,
    starts: &Bound<'py, PyAny>,
    lengths: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, Block>> {
    let (buffer, starts, lengths) = (View::of(buffer)?, View::of(starts)?, View::of(lengths)?);
    let spans = checked(&buffer, &starts, &lengths)?;
    let mut arena = Arena::take(encode::block_size(spans.lengths));
    encode::fill(arena.bytes_mut(), &[Source::Wire { spans }], spans.lengths);
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
    [buffer, starts, lengths]: [&Bound<'py, PyAny>; 3],
    missing: &Bound<'py, PyAny>,
    make: impl Fn(&[u8]) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyList>> {
    let (buffer, starts, lengths) = (View::of(buffer)?, View::of(starts)?, View::of(lengths)?);
    let spans = checked(&buffer, &starts, &lengths)?;
    let of_row = |row| spans.get(row).map_or_else(|| Ok(missing.clone()), &make);
    PyList::new(
        py,
        (0..spans.lengths.len())
            .map(of_row)
            .collect::<PyResult<Vec<_>>>()?,
    )
}

#[pyfunction]
fn are_texts(
    buffer: &Bound<'_, PyAny>,
    starts: &Bound<'_, PyAny>,
    lengths: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    let (buffer, starts, lengths) = (View::of(buffer)?, View::of(starts)?, View::of(lengths)?);
    let spans = checked(&buffer, &starts, &lengths)?;
    let is_text = |raw: &[u8]| std::str::from_utf8(raw).is_ok();
    Ok((0..spans.lengths.len()).all(|row| spans.get(row).is_none_or(is_text)))
}

pub fn checked<'a>(
    buffer: &'a View<'_>,
    starts: &'a View<'_>,
    lengths: &'a View<'_>,
) -> PyResult<Spans<'a>> {
    Spans::checked(buffer.bytes(), starts.numbers()?, lengths.numbers()?)
        .map_err(|row| PyValueError::new_err(Outside(row).to_string()))
}
