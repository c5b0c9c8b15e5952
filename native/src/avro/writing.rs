//! Columns of Python objects on their way into Avro records; `_native.pyi` documents the names.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::core::encode::{self, Output, Source, Word};
use crate::arena::Arena;
use crate::columnar::core::strings::{block_size, place};
use crate::columnar::{View, ViewedSpans};
use crate::memory::Block;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(avro_encoded, module)?)
}

/// The Python objects of a column on its way out.
enum Held<'py> {
    Numbers(View<'py>),
    Lists(usize, View<'py>),
    Ragged(View<'py>, View<'py>),
    Strings(ViewedSpans<'py>),
    Written(ViewedSpans<'py>),
    Nothing,
}

struct Column<'py> {
    held: Held<'py>,
    word: Word,
    before: Vec<u8>,
    absent: Option<Vec<u8>>,
    present: Option<View<'py>>,
}

#[pyfunction]
fn avro_encoded<'py>(
    py: Python<'py>,
    rows: usize,
    prefix: Vec<u8>,
    columns: Vec<Bound<'py, PyTuple>>,
) -> PyResult<Option<Bound<'py, Block>>> {
    let held: Vec<Column<'py>> = columns.iter().map(hold).collect::<PyResult<_>>()?;
    let outputs: Vec<Output<'_>> = held
        .iter()
        .map(|column| {
            Ok(Output {
                source: source(&column.held)?,
                word: column.word,
                before: column.before.clone(),
                absent: column.absent.clone(),
                present: column.present.as_ref().map(View::bytes),
            })
        })
        .collect::<PyResult<_>>()?;
    let Some((records, lengths)) = encode::records(rows, &prefix, &outputs) else {
        return Ok(None);
    };
    let mut arena = Arena::take(block_size(&lengths));
    place(arena.bytes_mut(), &lengths).copy_from_slice(&records);
    Bound::new(py, Block { arena }).map(Some)
}

/// (form, kind, number, before, absent, present, ...)
fn hold<'py>(column: &Bound<'py, PyTuple>) -> PyResult<Column<'py>> {
    let view = |place: usize| View::of(&column.get_item(place)?);
    let present = column.get_item(5)?;
    let held = match column.get_item(0)?.extract::<u8>()? {
        0 => Held::Numbers(view(6)?),
        1 => Held::Lists(column.get_item(7)?.extract()?, view(6)?),
        2 => Held::Ragged(view(7)?, view(6)?),
        3 => Held::Strings(ViewedSpans::at(column, 6)?),
        4 => Held::Written(ViewedSpans::at(column, 6)?),
        5 => Held::Nothing,
        other => return Err(PyValueError::new_err(format!("there is no form {other}"))),
    };
    let word = match column.get_item(1)?.extract::<u8>()? {
        1 => Word::Boolean,
        2 => Word::Int,
        4 => Word::Days,
        5 => Word::Parts(column.get_item(2)?.extract()?),
        7 => Word::Float,
        8 => Word::Double,
        _ => Word::Long,
    };
    Ok(Column {
        held,
        word,
        before: column.get_item(3)?.extract()?,
        absent: column.get_item(4)?.extract()?,
        present: if present.is_none() {
            None
        } else {
            Some(View::of(&present)?)
        },
    })
}

fn source<'a>(held: &'a Held<'_>) -> PyResult<Source<'a>> {
    Ok(match held {
        Held::Numbers(values) => Source::Numbers(values.bytes()),
        Held::Lists(width, values) => Source::Lists(*width, values.bytes()),
        Held::Ragged(splits, values) => Source::Ragged(splits.numbers()?, values.bytes()),
        Held::Strings(spans) => Source::Strings(spans.spans()?),
        Held::Written(spans) => Source::Written(spans.spans()?),
        Held::Nothing => Source::Nothing,
    })
}
