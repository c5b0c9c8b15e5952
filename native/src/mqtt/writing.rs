//! Columns to bytes of a connection.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::core::acks;
use super::core::publish::Message;
use crate::columnar::core::spans::Spans;
use crate::columns::{Array, Strings};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(mqtt_encode_publishes, module)?)?;
    module.add_function(wrap_pyfunction!(mqtt_encode_acks, module)?)
}

#[pyfunction]
fn mqtt_encode_acks<'py>(
    py: Python<'py>,
    first: u8,
    ids: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let ids = Array::<u16>::of(ids, "packet identifiers")?;
    let ids = ids.slice();
    if ids.contains(&0) {
        return Ok(None);
    }
    let write = |out: &mut [u8]| {
        acks::write(out, first, ids);
        Ok(())
    };
    PyBytes::new_with(py, ids.len() * 4, write).map(Some)
}

/// A property of messages: one value for all of them, or one for each.
enum Each<'a, T> {
    All(T),
    Of(&'a [T]),
}

impl<T: Copy> Each<'_, T> {
    fn get(&self, row: usize) -> Option<T> {
        match self {
            Each::All(one) => Some(*one),
            Each::Of(many) => many.get(row).copied(),
        }
    }
}

enum Held<'py> {
    Spans(Strings),
    List(Vec<Option<Bound<'py, PyBytes>>>),
}

impl<'py> Held<'py> {
    fn of(values: &Bound<'py, PyAny>) -> PyResult<Held<'py>> {
        let Ok(list) = values.cast::<PyList>() else {
            return Ok(Held::Spans(Strings::of(values, "payloads")?));
        };
        let bytes = |value: Bound<'py, PyAny>| {
            if value.is_none() {
                return Ok(None);
            }
            let wrong = |_| PyTypeError::new_err("there must be bytes or None");
            value.cast_into::<PyBytes>().map(Some).map_err(wrong)
        };
        Ok(Held::List(list.iter().map(bytes).collect::<PyResult<_>>()?))
    }

    fn len(&self) -> usize {
        match self {
            Held::Spans(spans) => spans.len(),
            Held::List(list) => list.len(),
        }
    }

    fn cut(&self) -> Looked<'_, 'py> {
        match self {
            Held::Spans(spans) => Looked::Spans(spans.spans()),
            Held::List(list) => Looked::List(list),
        }
    }
}

enum Looked<'a, 'py> {
    Spans(Spans<'a>),
    List(&'a [Option<Bound<'py, PyBytes>>]),
}

impl<'a> Looked<'a, '_> {
    fn get(&self, row: usize) -> Option<&'a [u8]> {
        match self {
            Looked::Spans(spans) => spans.get(row),
            Looked::List(list) => list.get(row)?.as_ref().map(|bytes| bytes.as_bytes()),
        }
    }
}

/// `None` if a message is wrong: Python raises the error.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn mqtt_encode_publishes<'py>(
    py: Python<'py>,
    topics: Vec<Bound<'py, PyBytes>>,
    codes: Option<&Bound<'py, PyAny>>,
    payloads: &Bound<'py, PyAny>,
    flags: &Bound<'py, PyAny>,
    ids: Option<&Bound<'py, PyAny>>,
    properties: &Bound<'py, PyAny>,
    bare: &[u8],
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let payloads = Held::of(payloads)?;
    let count = payloads.len();
    let codes = codes
        .map(|codes| Array::<i32>::of(codes, "codes"))
        .transpose()?;
    let ids = ids
        .map(|ids| Array::<u16>::of(ids, "packet identifiers"))
        .transpose()?;
    let array = match flags.extract::<u8>() {
        Ok(_) => None,
        Err(_) => Some(Array::<u8>::of(flags, "flags")?),
    };
    let flags = match &array {
        Some(array) => Each::Of(array.slice()),
        None => Each::All(flags.extract::<u8>()?),
    };
    let own = match properties.cast::<PyBytes>() {
        Ok(_) => None,
        Err(_) => Some(Held::of(properties)?),
    };
    let (codes, ids) = (
        codes.as_ref().map(Array::slice),
        ids.as_ref().map(Array::slice),
    );
    let fits = |length: Option<usize>| length.is_none_or(|length| length == count);
    let many = match &flags {
        Each::Of(flags) => Some(flags.len()),
        Each::All(_) => None,
    };
    if ![
        codes.map(<[i32]>::len),
        ids.map(<[u16]>::len),
        own.as_ref().map(Held::len),
        many,
    ]
    .into_iter()
    .all(fits)
    {
        return Ok(None);
    }
    let (payloads, own) = (payloads.cut(), own.as_ref().map(Held::cut));
    let shared = properties
        .cast::<PyBytes>()
        .map_or(&[][..], |bytes| bytes.as_bytes());
    let message = |row: usize| {
        let code = codes.map_or(0, |codes| codes[row]);
        Some(Message {
            flags: flags.get(row)?,
            topic: topics.get(usize::try_from(code).ok()?)?.as_bytes(),
            packet_id: ids.map_or(0, |ids| ids[row]),
            properties: own
                .as_ref()
                .map_or(shared, |own| own.get(row).unwrap_or(bare)),
            payload: payloads.get(row).unwrap_or_default(),
        })
    };
    let Some(messages) = (0..count)
        .map(|row| message(row).filter(Message::is_right))
        .collect::<Option<Vec<Message<'_>>>>()
    else {
        return Ok(None);
    };
    let write = |mut out: &mut [u8]| {
        for message in &messages {
            out = message.write(out);
        }
        Ok(())
    };
    PyBytes::new_with(py, messages.iter().map(Message::size).sum(), write).map(Some)
}
