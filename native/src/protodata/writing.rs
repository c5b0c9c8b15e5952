//! Columns of Python objects on their way into messages; `_native.pyi` documents the names.

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use super::core::encode::{self, Source};
use crate::arena::Arena;
use crate::columnar::core::strings::block_size;
use crate::columnar::{View, ViewedSpans, WORTH_DETACHING};
use crate::memory::Block;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(encoded, module)?)
}

/// The Python objects of a column on its way out.
enum Held<'py> {
    Fixed {
        head: Vec<u8>,
        tail: Vec<u8>,
        size: usize,
        values: View<'py>,
        present: Option<View<'py>>,
    },
    Integers {
        key: Vec<u8>,
        values: View<'py>,
        present: Option<View<'py>>,
    },
    Strings {
        key: Vec<u8>,
        bytes: bool,
        spans: ViewedSpans<'py>,
    },
    Loose {
        key: Vec<u8>,
        bytes: bool,
        values: Vec<Bound<'py, PyAny>>,
    },
    Wire {
        spans: ViewedSpans<'py>,
    },
    Entries {
        values: Vec<Bound<'py, PyAny>>,
    },
}

#[pyfunction]
fn encoded<'py>(
    py: Python<'py>,
    rows: usize,
    columns: Vec<Bound<'py, PyTuple>>,
    failed: Vec<usize>,
) -> PyResult<Bound<'py, Block>> {
    let held: Vec<Held<'py>> = columns.iter().map(hold).collect::<PyResult<_>>()?;
    let sources: Vec<Source<'_>> = held.iter().map(source).collect::<PyResult<_>>()?;
    if sources.iter().any(|source| source.rows() != Some(rows)) {
        return Err(PyValueError::new_err(format!(
            "a column has not the {rows} rows of its batch"
        )));
    }
    let lengths = encode::lengths(rows, &sources, &failed).map_err(|row| {
        PyOverflowError::new_err(format!("the message at position {row} is too long"))
    })?;
    let size = block_size(&lengths);
    let work = move || {
        let mut arena = Arena::take(size);
        encode::fill(arena.bytes_mut(), &sources, &lengths);
        arena
    };
    let arena = if size >= WORTH_DETACHING {
        py.detach(work)
    } else {
        work()
    };
    Bound::new(py, Block { arena })
}

fn hold<'py>(column: &Bound<'py, PyTuple>) -> PyResult<Held<'py>> {
    let at = |place: usize| column.get_item(place);
    let bytes = |place: usize| Ok::<_, PyErr>(at(place)?.cast::<PyBytes>()?.as_bytes().to_vec());
    let view = |place: usize| View::of(&at(place)?);
    let mask = |place: usize| {
        let mask = at(place)?;
        if mask.is_none() {
            Ok(None)
        } else {
            View::of(&mask).map(Some)
        }
    };
    let list = |place: usize| Ok::<_, PyErr>(at(place)?.cast::<PyList>()?.iter().collect());
    match at(0)?.extract::<u8>()? {
        0 => Ok(Held::Fixed {
            head: bytes(1)?,
            tail: bytes(2)?,
            size: at(3)?.extract()?,
            values: view(4)?,
            present: mask(5)?,
        }),
        1 => Ok(Held::Integers {
            key: encode::key_field(&bytes(1)?),
            values: view(2)?,
            present: mask(3)?,
        }),
        2 => Ok(Held::Strings {
            key: encode::key_field(&bytes(1)?),
            bytes: at(2)?.extract()?,
            spans: ViewedSpans::at(column, 3)?,
        }),
        3 => Ok(Held::Loose {
            key: encode::key_field(&bytes(1)?),
            bytes: at(2)?.extract()?,
            values: list(3)?,
        }),
        4 => Ok(Held::Wire {
            spans: ViewedSpans::at(column, 1)?,
        }),
        5 => Ok(Held::Entries { values: list(1)? }),
        form => Err(PyValueError::new_err(format!(
            "no such form of a column: {form}"
        ))),
    }
}

fn source<'a>(held: &'a Held<'_>) -> PyResult<Source<'a>> {
    Ok(match held {
        Held::Fixed {
            head,
            tail,
            size,
            values,
            present,
        } => Source::Fixed {
            head: head.clone(),
            tail: tail.clone(),
            size: *size,
            values: values.bytes(),
            present: present.as_ref().map(View::bytes),
        },
        Held::Integers {
            key,
            values,
            present,
        } => Source::Integers {
            key: key.clone(),
            values: values.bytes(),
            present: present.as_ref().map(View::bytes),
        },
        Held::Strings { key, bytes, spans } => Source::Strings {
            key: key.clone(),
            bytes: *bytes,
            spans: spans.spans()?,
        },
        Held::Loose { key, bytes, values } => {
            let values = values
                .iter()
                .map(|value| loose(value, *bytes))
                .collect::<PyResult<_>>()?;
            Source::Loose {
                key: key.clone(),
                bytes: *bytes,
                values,
            }
        }
        Held::Wire { spans } => Source::Wire {
            spans: spans.spans()?,
        },
        Held::Entries { values } => Source::Entries {
            values: values
                .iter()
                .map(|value| loose(value, true))
                .collect::<PyResult<_>>()?,
        },
    })
}

fn loose<'a>(value: &'a Bound<'_, PyAny>, bytes: bool) -> PyResult<Option<&'a [u8]>> {
    if value.is_none() {
        return Ok(None);
    }
    let found = if bytes {
        value.cast::<PyBytes>().map(|value| Some(value.as_bytes()))
    } else {
        return match value.cast::<PyString>() {
            Ok(text) => text.to_str().map(|text| Some(text.as_bytes())),
            Err(_) => Err(PyTypeError::new_err(
                "a column of strings holds something else",
            )),
        };
    };
    found.map_err(|_| PyTypeError::new_err("a column of bytes holds something else"))
}
