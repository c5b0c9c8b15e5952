//! Columns of Python objects on their way into JSON; `_native.pyi` documents the names.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::core::encode::{self, Element, Output, Source};
use crate::arena::Arena;
use crate::columnar::core::strings::{block_size, place};
use crate::columnar::{View, ViewedSpans};
use crate::memory::Block;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(json_encoded, module)?)
}

/// The Python objects of a column on its way out.
enum Held<'py> {
    Json(ViewedSpans<'py>),
    Texts(ViewedSpans<'py>),
    Numbers {
        element: Element,
        shape: Vec<usize>,
        values: View<'py>,
        present: Option<View<'py>>,
        whole: Option<View<'py>>,
    },
}

#[pyfunction]
fn json_encoded<'py>(
    py: Python<'py>,
    rows: usize,
    columns: Vec<Bound<'py, PyTuple>>,
    failed: Vec<usize>,
) -> PyResult<Bound<'py, Block>> {
    let held: Vec<(Vec<u8>, Held<'py>)> = columns.iter().map(hold).collect::<PyResult<_>>()?;
    let outputs: Vec<Output<'_>> = held
        .iter()
        .map(|(prefix, held)| {
            Ok(Output {
                prefix: prefix.clone(),
                source: source(held)?,
            })
        })
        .collect::<PyResult<_>>()?;
    if outputs.iter().any(|output| !output.source.has(rows)) {
        return Err(PyValueError::new_err(format!(
            "a column has not the {rows} rows of its batch"
        )));
    }
    let (text, lengths) = encode::objects(rows, &outputs, &failed);
    let mut arena = Arena::take(block_size(&lengths));
    place(arena.bytes_mut(), &lengths).copy_from_slice(&text);
    Bound::new(py, Block { arena })
}

fn hold<'py>(column: &Bound<'py, PyTuple>) -> PyResult<(Vec<u8>, Held<'py>)> {
    let view = |place: usize| View::of(&column.get_item(place)?);
    let maybe = |place: usize| {
        let object = column.get_item(place)?;
        if object.is_none() {
            return Ok(None);
        }
        View::of(&object).map(Some)
    };
    let prefix: Vec<u8> = column.get_item(1)?.extract()?;
    let held = match column.get_item(0)?.extract::<u8>()? {
        0 => Held::Json(ViewedSpans::at(column, 2)?),
        1 => Held::Texts(ViewedSpans::at(column, 2)?),
        2 => {
            let name: String = column.get_item(2)?.extract()?;
            Held::Numbers {
                element: Element::named(&name).ok_or_else(|| {
                    PyValueError::new_err(format!("there are no numbers of type {name}"))
                })?,
                shape: column.get_item(3)?.extract()?,
                values: view(4)?,
                present: maybe(5)?,
                whole: maybe(6)?,
            }
        }
        other => return Err(PyValueError::new_err(format!("there is no form {other}"))),
    };
    Ok((prefix, held))
}

fn source<'a>(held: &'a Held<'_>) -> PyResult<Source<'a>> {
    Ok(match held {
        Held::Json(views) => Source::Json(views.spans()?),
        Held::Texts(views) => Source::Texts(views.spans()?),
        Held::Numbers {
            element,
            shape,
            values,
            present,
            whole,
        } => Source::Numbers {
            element: *element,
            shape: shape.clone(),
            values: values.bytes(),
            present: present.as_ref().map(View::bytes),
            whole: whole.as_ref().map(View::bytes),
        },
    })
}
